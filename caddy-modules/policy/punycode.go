package policy

import (
	"math"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Parameters of RFC 3492 section 5.
const (
	puBase        = 36
	puTmin        = 1
	puTmax        = 26
	puSkew        = 38
	puDamp        = 700
	puInitialBias = 72
	puInitialN    = 0x80
)

// aLabels writes a name outside ASCII with A-labels, for an error message. It
// gives up on characters that IDNA (RFC 5892) would map or drop, rather than
// suggest a name that nobody registered; nothing is ever matched by it.
func aLabels(name string) (string, bool) {
	if !utf8.ValidString(name) || isASCII(name) {
		return "", false
	}
	labels := strings.Split(name, ".")
	for i, label := range labels {
		if isASCII(label) {
			continue
		}
		label = strings.ToLower(label)
		for _, c := range label {
			if c >= utf8.RuneSelf && !plainLetter(c) {
				return "", false
			}
		}
		encoded, ok := punycode(label)
		if !ok {
			return "", false
		}
		labels[i] = "xn--" + encoded
	}
	ascii := strings.Join(labels, ".")
	if _, err := ParseName(strings.Replace(ascii, "*", "x", 1)); err != nil {
		return "", false
	}
	return ascii, true
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// plainLetter leaves out the compatibility forms (full-width letters, ligatures,
// mathematical alphabets), which IDNA maps to other letters.
func plainLetter(c rune) bool {
	switch {
	case 0xf900 <= c && c <= 0xffff, 0x1d400 <= c && c <= 0x1d7ff, c == 'ª', c == 'º':
		return false
	default:
		return unicode.Is(unicode.Ll, c) || unicode.Is(unicode.Lo, c)
	}
}

// punycode is the encoder of RFC 3492 section 6.3; false for what overflows.
func punycode(label string) (string, bool) {
	var out strings.Builder
	runes := []rune(label)
	basic := 0
	for _, c := range runes {
		if c < utf8.RuneSelf {
			out.WriteRune(c)
			basic++
		}
	}
	if basic > 0 {
		out.WriteByte('-')
	}
	n, delta, bias := rune(puInitialN), 0, puInitialBias
	for handled := basic; handled < len(runes); {
		next := rune(math.MaxInt32)
		for _, c := range runes {
			if c >= n && c < next {
				next = c
			}
		}
		step := int(next-n) * (handled + 1)
		if delta > math.MaxInt32-step {
			return "", false
		}
		delta += step
		n = next
		for _, c := range runes {
			if c < n {
				delta++
			}
			if c != n {
				continue
			}
			q := delta
			for k := puBase; ; k += puBase {
				t := min(max(k-bias, puTmin), puTmax)
				if q < t {
					break
				}
				out.WriteByte(digit(t + (q-t)%(puBase-t)))
				q = (q - t) / (puBase - t)
			}
			out.WriteByte(digit(q))
			bias = adapt(delta, handled+1, handled == basic)
			delta = 0
			handled++
		}
		delta++
		n++
	}
	return out.String(), true
}

func digit(d int) byte {
	if d < 26 {
		return byte('a' + d) //nolint:gosec // 0 <= d < 36
	}
	return byte('0' + d - 26) //nolint:gosec // 0 <= d < 36
}

func adapt(delta, points int, first bool) int {
	if first {
		delta /= puDamp
	} else {
		delta /= 2
	}
	delta += delta / points
	k := 0
	for delta > (puBase-puTmin)*puTmax/2 {
		delta /= puBase - puTmin
		k += puBase
	}
	return k + (puBase-puTmin+1)*delta/(delta+puSkew)
}
