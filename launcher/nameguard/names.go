package nameguard

import "slices"

// The names that no run may make or change, by default. Each is read or executed later, by
// the user's own tools and outside any sandbox. This is the one list: the search of a
// run's folders, the profile of macOS and the rules on Linux are made from it.
var (
	secrets = []string{"**/.env", "**/.env.*", "**/*.key", "**/*.pem", "**/*.p12", "**/*.pfx"}

	files = []string{
		".gitconfig", ".gitmodules",
		".bashrc", ".bash_profile", ".zshrc", ".zprofile", ".profile",
		".ripgreprc", ".mcp.json", ".npmrc", ".netrc", ".git-credentials",
	}
	folders = []string{".vscode", ".idea", ".ssh", ".aws", ".kube", ".docker"}

	// claude are those in a .claude; sessions and caches are not.
	claude = []string{"commands", "agents", "hooks", "settings.json", "settings.local.json"}

	// git are those of a git directory by which it redirects git to another
	// configuration, other hooks, attributes (which name filters) or objects, or says
	// where its worktree is (gitrepository-layout(5)).
	git = []string{"hooks", "config", "config.worktree", "commondir", "gitdir", "info/attributes", "objects/info/alternates"}

	// gitMakes are those of git that git itself writes as it makes a repository.
	gitMakes = []string{"config", "objects/info/alternates"}

	// gitBelow are those of submodules, whose names may have slashes, and of linked
	// worktrees.
	gitBelow = []string{
		"modules/**/hooks", "modules/**/config", "modules/**/config.worktree", "modules/**/commondir",
		"worktrees/*/hooks", "worktrees/*/config", "worktrees/*/config.worktree", "worktrees/*/commondir",
	}

	packages = []string{"node_modules"}
)

// Files are names of files that are protected wherever they lie.
func Files() []string { return slices.Clone(files) }

// Folders are names of folders that are protected wherever they lie.
func Folders() []string { return slices.Clone(folders) }

// Claude are the names in a .claude that are protected.
func Claude() []string { return slices.Clone(claude) }

// Top are the names of Mandatory that a folder can have, but for those in a git directory.
func Top() []string {
	out := slices.Concat(files, folders)
	for _, name := range claude {
		out = append(out, ".claude/"+name)
	}
	return out
}

// Git are the names in a git directory that are protected.
func Git() []string { return slices.Clone(git) }

// Packages are names of directories that are unpacked with such names as a matter of
// course: Mandatory holds outside them, Secrets in them too.
func Packages() []string { return slices.Clone(packages) }

// Secrets are the patterns of secrets, which hold at any depth (SPEC section 2).
func Secrets() []Rule { return defaults("", secrets) }

// Mandatory are the names that hold whatever a run asks for (SPEC 33), at any depth.
func Mandatory() []Rule {
	return slices.Concat(defaults("**/", files), defaults("**/", folders), defaults("**/.claude/", claude), defaults("**/.git/", git), defaults("**/.git/", gitBelow))
}

// Everywhere are those of Mandatory that hold in packages, too: a submodule may lie there,
// whose git directory has the names of the way to it.
func Everywhere() []Rule { return defaults("**/.git/", gitBelow) }

// MandatoryNew are those of Mandatory that can hold where repositories are made: git init
// and git clone work. Of a repository that is there, forbid the rest by its paths: Git.
func MandatoryNew() []Rule {
	return slices.DeleteFunc(Mandatory(), func(r Rule) bool {
		return slices.ContainsFunc(gitMakes, func(name string) bool { return r.Text == "**/.git/"+name })
	})
}

func defaults(before string, names []string) []Rule {
	out := make([]Rule, 0, len(names))
	for _, name := range names {
		out = append(out, Rule{Text: before + name, Source: SourceDefault})
	}
	return out
}
