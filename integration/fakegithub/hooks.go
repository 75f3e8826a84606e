package fakegithub

import (
	"fmt"
	"os"
	"path/filepath"
)

// preReceive is the hook of every repository. It refuses what GitHub refuses
// after the pack is in: updates of protected branches, and workflow files
// pushed by an App without the workflows permission. git has one reason for
// all refs a hook refuses; GitHub has its own, which the hook leaves in a file
// for the report (report.go).
//
// The commits looked at are those that no ref has yet. Deleting a workflow is
// not "create or update".
const preReceive = `#!/bin/sh
status=0
news=
refs=$(cat)
while read -r old new ref; do
	case $new in *[!0]*) news="$news $new" ;; esac
	case " $FAKEGITHUB_PROTECTED " in *" $ref "*)
		echo "error: GH006: Protected branch update failed for $ref." >&2
		echo "error: Changes must be made through a pull request." >&2
		printf '%s\t%s\n' "$ref" "protected branch hook declined" >>"$FAKEGITHUB_VERDICTS"
		status=1 ;;
	esac
done <<END
$refs
END
workflow() {
	git log --format= --name-only --no-renames --diff-filter=d -m "$@" --not --all -- .github/workflows 2>/dev/null | head -n 1
}
# One look at all refs together; most pushes end here.
if [ -z "$FAKEGITHUB_WORKFLOWS" ] && [ -n "$news" ] && [ -n "$(workflow $news)" ]; then
	while read -r old new ref; do
		case $new in *[!0]*) ;; *) continue ;; esac
		file=$(workflow "$new")
		[ -n "$file" ] || continue
		printf '%s\t%s\n' "$ref" "refusing to allow a GitHub App to create or update workflow \` + "`$file\\`" + ` without \` + "`workflows\\`" + ` permission" >>"$FAKEGITHUB_VERDICTS"
		status=1
	done <<END
$refs
END
fi
exit $status
`

func writeHooks(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make hooks directory: %w", err)
	}
	script := filepath.Join(dir, "pre-receive")
	if err := os.WriteFile(script, []byte(preReceive), 0o700); err != nil {
		return fmt.Errorf("write pre-receive hook: %w", err)
	}
	return nil
}
