package main

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
)

// maxLine bounds a line of a case file: some hold a request of a megabyte.
const maxLine = 16 << 20

// line is one line of a case file that is not empty.
type line struct {
	file string
	n    int // from 1
	text []byte
}

// place is FILE:LINE.
func (l line) place() string { return fmt.Sprintf("%s:%d", l.file, l.n) }

// fault is an error with the place of its line, nil for none.
func (l line) fault(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", l.place(), err)
}

// eachLine reads a case file. The text of a line is good until the next one.
func eachLine(file string, each func(line)) error {
	f, err := os.Open(file)
	if err != nil {
		return fmt.Errorf("read cases: %w", err)
	}
	defer func() { _ = f.Close() }() // read only
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, maxLine)
	for n := 1; sc.Scan(); n++ {
		text := bytes.TrimSpace(bytes.TrimPrefix(sc.Bytes(), []byte("\xef\xbb\xbf")))
		if len(text) > 0 {
			each(line{file, n, text})
		}
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read cases from %s: %w", file, err)
	}
	return nil
}
