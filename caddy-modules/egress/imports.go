package egress

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
)

// checkImports refuses a block of which an import brought nothing. To Caddy a
// pattern that matches no file, and a file with nothing in it, are warnings, and
// no token tells that they were there: a deny list lost by a typo would only be
// missed where it stood alone. So the text is read once more.
//
// The block begins with the option's name. A file that cannot be read here, as
// one that came over standard input, is not checked.
func checkImports(block []caddyfile.Token) error {
	files := map[string]int{block[0].File: block[0].Line}
	for _, t := range block {
		if _, ok := files[t.File]; !ok {
			files[t.File] = 0 // imported: all of it belongs to the block
		}
	}
	for file, line := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		tokens, err := caddyfile.Tokenize(text, file)
		if err != nil {
			return fmt.Errorf("read imports of %s: %w", file, err)
		}
		if line > 0 {
			tokens = blockAt(tokens, line)
		}
		if err := checkImportLines(tokens); err != nil {
			return err
		}
	}
	return nil
}

// blockAt gives the tokens of the block that is opened on a line.
func blockAt(tokens []caddyfile.Token, line int) []caddyfile.Token {
	depth, begin := 0, -1
	for i, t := range tokens {
		switch {
		case begin < 0 && t.Line != line:
		case t.Text == "{":
			if begin < 0 {
				begin = i
			}
			depth++
		case t.Text == "}" && begin >= 0:
			if depth--; depth == 0 {
				return tokens[begin:i]
			}
		}
	}
	return nil
}

func checkImportLines(tokens []caddyfile.Token) error {
	for i := 0; i+1 < len(tokens); i++ {
		word, pattern := tokens[i], tokens[i+1]
		first := i == 0 || tokens[i-1].Line != word.Line
		if !first || word.Text != "import" || pattern.Line != word.Line || strings.Contains(pattern.Text, "{") {
			continue // a placeholder is not known here
		}
		if err := checkImport(word.File, pattern.Text); err != nil {
			return At(word, err)
		}
	}
	return nil
}

func checkImport(from, pattern string) error {
	path := pattern
	if !filepath.IsAbs(path) {
		path = filepath.Join(filepath.Dir(from), path)
	}
	found, err := filepath.Glob(path)
	if err != nil {
		return fmt.Errorf("import %s: %w", pattern, err)
	}
	if len(found) == 0 {
		if !strings.ContainsAny(pattern, "*?[") {
			return nil // a snippet; a missing file has been refused before
		}
		return fmt.Errorf("import %s matches no file; a list that is not there must not pass for one with nothing in it", pattern)
	}
	for _, file := range found {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("import %s: %w", pattern, err)
		}
		if tokens, err := caddyfile.Tokenize(text, file); err == nil && len(tokens) == 0 {
			return fmt.Errorf("import %s: %s has no rule in it; remove it, or its import", pattern, file)
		}
	}
	return nil
}
