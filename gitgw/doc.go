// Package gitgw is a gateway for git pushes over smart HTTP. A run pushes to it
// instead of to its forge; it reads which refs the push would update, asks its
// rules, and only then obtains a write token and streams the push on. The run
// never holds that token.
//
// # One push, step by step
//
//	GET  …/info/refs?service=git-receive-pack
//	     the advertisement, made from upload-pack's with a read token: a push
//	     that will be refused never causes a write token to exist
//	POST …/git-receive-pack, in the order of push.run and push.forward
//	     ReadHead   commands, capabilities, shallow lines, push options
//	     judge      Rules: push, ask or deny for each ref; one refusal refuses all
//	     admit      how many refs, which push options
//	     inspect    where a rule looks into the pack, it is kept in a file first: is it
//	                forced, how large is it, secrets, protected paths
//	     consult    Source, the host's own rules, where there are some: the stricter counts
//	     approved   Approver, for ask: the client waits and sees why
//	     mint       Minter: one token, one repository, contents:write
//	     preflight  proves the token, since a stream cannot be replayed
//	     relay      our own encoding of the head, then the pack, kept or as it comes
//	     revoke     always, even when the client or the forge has gone
//
// ServeHTTP begins both; Git LFS, which asks before git pushes, goes from there to
// Gateway.lfs, and is judged by the rules and the source for the ref that it names.
//
// # What keeps the decision true
//
// The bytes that were judged are not forwarded. The head is parsed by a reader
// stricter than git, and what goes upstream is our encoding of what the rules
// saw, so no reader behind us can see other refs. Anything unusual is refused,
// not repaired: git, go-git and forges disagree on NUL bytes, Unicode spaces
// and missing flushes, and each disagreement is a way round a branch rule.
//
// # How a refusal looks
//
// As git's own: HTTP 200 with a complete status report, after the whole request
// was read. An HTTP error on the POST makes git print "Everything up-to-date",
// and a 200 that ends inside a packet makes it wait for ever. So this package
// either writes a complete report or aborts the connection.
//
// The package knows nothing of sessions: who pushes, and to which repositories
// it may, arrives as a [Caller] in the request's context.
package gitgw
