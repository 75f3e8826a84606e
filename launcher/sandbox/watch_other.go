//go:build !linux

package sandbox

// Watch has nothing to tell where no masks are mounted.
func (f *Facts) Watch(func(Change)) (stop func()) { return func() {} }
