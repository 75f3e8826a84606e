package sandbox

import (
	"errors"
	"io/fs"
)

// GitIdentity reads user.name and user.email of git configurations, the later ones over
// the earlier; what is not there says nothing. Like `git config --global` it follows no
// include. It fails where it takes git itself to tell: a process of git's costs more than
// all else that a launcher does.
func GitIdentity(paths ...string) (name, email string, err error) {
	for _, path := range paths {
		settings, err := readConfig(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		for _, s := range settings {
			switch s.key {
			case "user.name":
				name = s.value
			case "user.email":
				email = s.value
			}
		}
	}
	return name, email, nil
}
