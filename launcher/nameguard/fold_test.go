package nameguard

import (
	"testing"

	"golang.org/x/text/unicode/norm"
)

func TestFold(t *testing.T) {
	for text, want := range map[string]string{
		".ENV": ".env", "．env": ".env", "id_rſa": "id_rsa", "server.Key": "server.key", "server.\u212aey": "server.key", ".e\u200cnv": ".env",
		".e\u00adnv\ufe0f": ".env", "\u2069.env": ".env", ".e\U000e0061nv": ".env", ".𝐞𝓃𝕧": ".env", "ⓔnv": "env", ".pro\ufb01le": ".profile",
		"STRASSE": "strasse", "straße": "strasse", "É": "é", "E\u0301": "é", "ΣΊΣΥΦΟΣ": "σίσυφοσ", "\xff.ENV": "\xff.env", "É\xffÉ": "é\xffé",
		"a/b": "a/b", "\u200d": "", "": "", "\n": "\n", "e\u034f\u0301": "é", "日本語": "日本語", "\u0600x": "\u0600x",
	} {
		if got := fold(text); got != want {
			t.Errorf("fold %q: got %q, want %q", text, got, want)
		}
	}
}

// TestFoldIsStable: what is folded stays as it is, for every character there is but the
// ideographs, which have no case.
func TestFoldIsStable(t *testing.T) {
	for r := rune(0); r < 0xe1000; r++ {
		switch r {
		case 0x3400:
			r = 0xa000
		case 0xac00:
			r = 0xd7a0
		case 0xd800:
			r = 0xf900
		case 0x20000:
			r = 0x2f800
		case 0x30000:
			r = 0xe0000
		}
		once := fold(string(r))
		if twice := fold(once); twice != once {
			t.Fatalf("%U: %q, then %q", r, once, twice)
		}
		if r < 0x3000 {
			for _, c := range []string{norm.NFC.String(string(r)), norm.NFD.String(string(r)), norm.NFKC.String(string(r)), norm.NFKD.String(string(r))} {
				if fold(c) != once {
					t.Fatalf("%U: %q as %q, %q as %q", r, string(r), once, c, fold(c))
				}
			}
		}
	}
}
