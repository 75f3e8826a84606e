// Package fakegithub is a GitHub for tests and the demo: real git behind
// GitHub's token checks, and the part of the App API that Postern uses.
//
// It is not a mock. A push runs through `git http-backend` into a bare
// repository on disk, so what a test finds there afterwards is what a push
// did. A token is made only by the App API, for the repositories and
// permissions asked for, and is enforced on every git and API request until
// it expires or is revoked.
//
//	gh, err := fakegithub.New(fakegithub.Options{})
//	defer gh.Close()
//	gh.AddRepo("acme/app")
//	gh.Commit("acme/app", "main", "first", map[string]string{"README": "hello\n"})
//	gh.Install(fakegithub.Installation{Account: "acme"})
//
// The App API answers at URL() and at URL()+"/api/v3/", as GitHub Enterprise
// does; repositories answer at URL()+"/OWNER/NAME.git". An appliance under
// test is given AppID and KeyPEM. Afterwards Requests and Tokens say what
// happened: that no receive-pack request came, that one token was made for
// one repository, that it was revoked.
//
// Texts and status codes are GitHub's own where they are known: git prints
// them, minters read them. Faults that GitHub has on bad days are switches
// (SetFaults, Rename, Suspend, Protect, Advance).
package fakegithub
