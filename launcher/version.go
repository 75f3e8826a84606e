package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
)

// version is what the build knows of itself.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "postern (no build information)"
	}
	revision, modified := "", ""
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			revision = " " + s.Value[:min(12, len(s.Value))]
		case "vcs.modified":
			if s.Value == "true" {
				modified = " (changed)"
			}
		}
	}
	return fmt.Sprintf("postern %s%s%s %s %s/%s", info.Main.Version, revision, modified, info.GoVersion, runtime.GOOS, runtime.GOARCH)
}
