package gitgw

import "errors"

func (in *inspection) protect(patterns []PathPattern) error {
	if len(patterns) > 0 {
		return errors.New("paths cannot be compared")
	}
	return nil
}
