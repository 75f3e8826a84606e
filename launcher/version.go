package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "postern (no build information)"
	}
	number, revision, modified := info.Main.Version, "", ""
	if number == "" || number == "(devel)" {
		number = "of no known version" // built without the repository, or from a file list
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				modified = " (changed)"
			}
		}
	}
	if revision != "" && !strings.Contains(number, revision) { // a pseudo-version has it
		number += " " + revision
	}
	return fmt.Sprintf("postern %s%s %s %s/%s", number, modified, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
