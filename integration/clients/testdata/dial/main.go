// Dial gets an address by itself, as a static program in Go that knows of no proxy.
package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"time"
)

func main() {
	client := &http.Client{Transport: &http.Transport{Proxy: nil}, Timeout: time.Minute}
	resp, err := client.Get(os.Args[1])
	if err != nil {
		if slow, ok := errors.AsType[net.Error](err); ok && slow.Timeout() {
			fmt.Fprintln(os.Stderr, "timed out")
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(os.Stdout, resp.Body)
	if resp.StatusCode != http.StatusOK {
		os.Exit(2)
	}
}
