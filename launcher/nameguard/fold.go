package nameguard

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// maxFolds bounds how often a text is folded until it stays as it is. Two are enough for
// all of Unicode 15; what a later one needs more of is compared as far as it came.
const maxFolds = 4

// fold is the form in which names are compared: what differs by case, by compatible
// characters or by invisible ones is the same. Bytes that are no UTF-8 stay.
func fold(text string) string {
	for range maxFolds {
		next := foldOnce(text)
		if next == text {
			break
		}
		text = next
	}
	return text
}

func foldOnce(text string) string {
	if isASCII(text) {
		return lowerASCII(text)
	}
	var b strings.Builder
	for len(text) > 0 {
		n := validPrefix(text)
		if n > 0 {
			piece := cases.Fold().String(norm.NFKD.String(text[:n]))
			b.WriteString(norm.NFKC.String(strings.Map(visible, piece)))
		}
		if n < len(text) {
			b.WriteByte(text[n])
			n++
		}
		text = text[n:]
	}
	return b.String()
}

// validPrefix is how much of text is UTF-8.
func validPrefix(text string) int {
	for i := 0; i < len(text); {
		r, size := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(text)
}

// visible drops the default ignorable code points (Unicode, DerivedCoreProperties).
func visible(r rune) rune {
	if r < 0xad { // none is ASCII
		return r
	}
	ignorable := unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r) || unicode.Is(unicode.Variation_Selector, r) ||
		unicode.Is(unicode.Cf, r) && (r < 0xfff9 || r > 0xfffb) && (r < 0x13430 || r > 0x13440) && !unicode.Is(unicode.Prepended_Concatenation_Mark, r)
	if ignorable {
		return -1
	}
	return r
}

func isASCII[T string | []byte](text T) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

func lowerASCII(text string) string {
	b := []byte(text)
	for i := range b {
		b[i] = lowerByte(b[i])
	}
	return string(b)
}

func lowerByte(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
