package main

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"
)

// released is the version of a build that has no history of the tree at hand, as in a container. The linker sets it;
// empty: the version is the module's.
var released string

// version returns the module's version, the commit it was built from where that
// is known, and Go's version and target.
func version() string {
	text := "ratelimitd"
	if info, ok := debug.ReadBuildInfo(); ok {
		text += " " + cmp.Or(released, info.Main.Version) + revision(info.Settings)
	}
	return fmt.Sprintf("%s %s %s/%s", text, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

func revision(settings []debug.BuildSetting) string {
	const shown = 12 // letters of the commit's hash, as git abbreviates
	commit, dirty := "", ""
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), shown)]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = ", modified"
		}
	}
	if commit == "" {
		return ""
	}
	return " (" + commit + dirty + ")"
}
