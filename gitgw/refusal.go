package gitgw

import "errors"

// Code names a reason for which the gateway refuses, for programs: it stands in
// records and events, and does not change as the words do.
type Code string

// The codes. Each has its cure.
const (
	CodeForeign        Code = "repository_foreign"
	CodeRule           Code = "rule"
	CodeMaxRefs        Code = "max_refs"
	CodeOption         Code = "push_option"
	CodePackLarge      Code = "pack_large"
	CodeForceUnknown   Code = "force_unknown"
	CodeProtected      Code = "path_protected"
	CodeProtectUnknown Code = "protect_unknown"
	CodeSecret         Code = "secret_found"
	CodeSecretUnknown  Code = "secret_unknown"
	CodeLookFailed     Code = "look_failed"
	CodeLookObjects    Code = "look_objects"
	CodeLookLarge      Code = "look_large"
	CodeLookWork       Code = "look_work"
	CodeLooksBusy      Code = "looks_busy"
	CodeLooksSpent     Code = "looks_spent"
	CodeSpoolMissing   Code = "spool_missing"
	CodeSpoolFull      Code = "spool_full"
	CodeSpoolAll       Code = "spool_all"
	CodeSpoolRun       Code = "spool_run"
	CodeSpoolLarge     Code = "spool_large"
	CodeTooLong        Code = "too_long"
	CodePushes         Code = "pushes"
	CodeHeadMalformed  Code = "head_malformed"
	CodePackMalformed  Code = "pack_malformed"
	CodeNoReport       Code = "no_report"
	CodeNoApprover     Code = "no_approver"
	CodePending        Code = "approval_pending"
	CodeNotApproved    Code = "approval_refused"
	CodeUnanswered     Code = "approval_failed"
	CodeQuestions      Code = "questions"
	CodeSource         Code = "rule_source"
	CodeNoToken        Code = "no_token"
	CodeMints          Code = "mints"
	CodeForgeRefused   Code = "forge_refused"
	CodeForgeLacks     Code = "forge_lacks"
	CodeForgeBroke     Code = "forge_broke"
	CodeUnknown        Code = "outcome_unknown"
	CodeEncode         Code = "encode"
	CodeRefs           Code = "refs"
	CodeNoRun          Code = "no_run"
	CodeRunEnded       Code = "run_ended"
	CodeRoute          Code = "not_served"
	CodeForgeForeign   Code = "forge_foreign"
	CodeFetch          Code = "fetch"
	CodeDumb           Code = "dumb_http"
	CodeMethod         Code = "method"
	CodeLFSOff         Code = "lfs_off"
	CodeLFSLocks       Code = "lfs_locks"
	CodeLFSMalformed   Code = "lfs_malformed"
	CodeLFSDownload    Code = "lfs_download"
	CodeLFSNoRef       Code = "lfs_no_ref"
	CodeLFSLarge       Code = "lfs_large"
	CodeLFSMany        Code = "lfs_many"
	CodeLFSAsk         Code = "lfs_ask"
	CodeLFSSecrets     Code = "lfs_secrets"
	CodeLFSBatches     Code = "lfs_batches"
	CodeLFSRoom        Code = "lfs_room"
	CodeLFSForge       Code = "lfs_forge"
	CodeLFSAddress     Code = "lfs_address"
	CodeLFSHandle      Code = "lfs_handle"
	CodeLFSContent     Code = "lfs_content"
	CodeLFSEncoding    Code = "lfs_encoding"
	CodeLFSStorage     Code = "lfs_storage"
)

// again is the cure for what passes.
const again = "push again in a while"

// cures say what a person or an agent can do about each reason, in one line. What a
// rule would allow instead, and where it stands, is said besides.
var cures = map[Code]string{ //nolint:gosec // words, and no credential among them
	CodeForeign:        "start the run with --repo HOST/OWNER/NAME, or name it under link: in launcher.yaml; a run may push to those alone",
	CodeRule:           "push to a ref that the rules allow, or have whoever keeps them add a rule for this one",
	CodeMaxRefs:        "push fewer refs at a time",
	CodeOption:         "push without -o, or have `options` in the gateway's repo block name it",
	CodePackLarge:      "push less at a time, take large files out of the history or keep them in Git LFS, or have max_pack raised",
	CodeForceUnknown:   "push again in a while, push without --force from a clone that is not shallow, or push to a new branch",
	CodeProtected:      "take the change of that path back (git checkout DEFAULT-BRANCH -- PATH, then commit), or ask a person to make it",
	CodeProtectUnknown: "push again in a while, or rebase onto the default branch and push fewer commits at a time",
	CodeSecret:         "remove it from every commit of the push (git rebase -i, then amend the one named), revoke it where it is good, and push again",
	CodeSecretUnknown:  "push fewer commits at a time, and whole packs (git push --no-thin)",
	CodeLookFailed:     "check the repository with git fsck, and push again from a fresh clone",
	CodeLookObjects:    "push fewer commits at a time: git push origin COMMIT:BRANCH, from the oldest on",
	CodeLookLarge:      "push large files with Git LFS, or whole: git config core.bigFileThreshold 4m, git repack -adf, then push again",
	CodeLookWork:       "push fewer commits at a time: git push origin COMMIT:BRANCH, from the oldest on",
	CodeLooksBusy:      "push again when they are through, one push at a time",
	CodeLooksSpent:     "wait for that long, and push fewer commits at a time",
	CodeSpoolMissing:   "have whoever keeps the appliance see to the folder of `spool` in the gateway's block",
	CodeSpoolFull:      "push again in a while, or have whoever keeps the appliance make room in the folder of `spool`",
	CodeSpoolAll:       "push again when their pushes have ended",
	CodeSpoolRun:       "push again when this run's other pushes have ended, or push fewer commits at a time",
	CodeSpoolLarge:     "push less at a time, or keep large files in Git LFS; up to 2 GiB, `total` and `run` of `spool` in the gateway's block can be raised",
	CodeTooLong:        "push less at a time, or over a faster connection",
	CodePushes:         "push again when one has ended",
	CodeHeadMalformed:  "push with a current git, fewer refs at a time and plain names for them",
	CodePackMalformed:  "push again; if that fails, check the repository with git fsck",
	CodeNoReport:       "push with a current git, which asks for a report",
	CodeNoApprover:     "push to a branch that needs no approval, or have an approver connect and push again",
	CodePending:        "wait for the approval, then make the same push again",
	CodeNotApproved:    "change what was objected to and push again, or push to a branch that needs no approval",
	CodeQuestions:      "push again when some of this run's questions have been answered, and several refs with one push",
	CodeUnanswered:     "push again in a while, or push to a branch that needs no approval",
	CodeSource:         again + "; if that fails, have whoever keeps the host's rules look at them",
	CodeNoToken:        again + "; if that fails, have whoever keeps the appliance look at `token` in the gateway's block",
	CodeMints:          "wait for that long, and push several refs with one push",
	CodeForgeRefused:   again + "; if that fails, see whether the forge takes pushes to this repository",
	CodeForgeLacks:     "push without that option, or from a clone of the same kind",
	CodeForgeBroke:     "push again",
	CodeUnknown:        "git fetch shows whether the push arrived; if not, push again",
	CodeEncode:         "push fewer refs at a time and plain names for them",
	CodeRefs:           again + "; if that fails, have whoever keeps the appliance look at its log",
	CodeNoRun:          "push from inside a run of postern",
	CodeRunEnded:       "push from a new run",
	CodeRoute:          "push to the address that `git remote -v` shows for push",
	CodeForgeForeign:   "add a forge block for it to the gateway, or push to a repository of a forge that has one",
	CodeFetch:          "fetch from the forge itself, with the run's read token",
	CodeDumb:           "unset GIT_SMART_HTTP and push again",
	CodeMethod:         "push with git",
	CodeLFSOff:         "keep the files in git (git lfs migrate export), or have `lfs on` set in the gateway's block",
	CodeLFSLocks:       "set lfs.locksverify to false",
	CodeLFSMalformed:   "push with a current git-lfs",
	CodeLFSDownload:    "fetch from the forge itself, with the run's read token",
	CodeLFSNoRef:       "push with git-lfs 2.4 or later",
	CodeLFSLarge:       "take the file out of the push or split it",
	CodeLFSMany:        "set lfs.transfer.batchSize to 100 or less",
	CodeLFSAsk:         "push them with a branch that needs no approval",
	CodeLFSSecrets:     "keep the files in git (git lfs migrate export), which is searched",
	CodeLFSBatches:     "push again when they have ended",
	CodeLFSRoom:        "push again when they have ended, or push fewer commits at a time",
	CodeLFSForge:       again + "; if that fails, see whether the forge has Git LFS for this repository",
	CodeLFSAddress:     "have whoever keeps the forge see to where its Git LFS storage is: https, and no private address but its own",
	CodeLFSHandle:      "push again",
	CodeLFSContent:     "check the files with git lfs fsck, and push again",
	CodeLFSEncoding:    "push with a current git-lfs",
	CodeLFSStorage:     again,
}

// WithCode gives an error of an [Approver] a code, and so a cure.
func WithCode(code Code, err error) error { return &coded{code, err} }

// coded is an error that has a code.
type coded struct {
	code Code
	error
}

func (c *coded) Unwrap() error { return c.error }

// codeOf is an error's own code, or another.
func codeOf(err error, other Code) Code {
	if c, ok := errors.AsType[*coded](err); ok {
		return c.code
	}
	return other
}

// cure is what can be done about a code.
func (c Code) cure() string { return cures[c] }
