package nameguard

// Violation is one call that a rule refused.
type Violation struct {
	Action string // what was tried, in the words of macOS: file-write-create …
	Target string // the path in the sandbox
	Rule   string // the text of the rule
	Source string // where the rule stands
	Comm   string // what the thread that tried is called
}

// What a refused call would have done.
const (
	actionCreate = "file-write-create"
	actionWrite  = "file-write-data"
	actionRemove = "file-write-unlink" // removed, or moved away
	actionLink   = "file-link"
)

// maxWaiting bounds how many violations wait to be told. A run can deny itself things
// faster than anybody reads; what finds no room is counted.
const maxWaiting = 256
