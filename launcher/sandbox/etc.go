package sandbox

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
)

// hostname is the name of every sandbox: the host's own is nobody's business.
const hostname = "postern"

// etcFiles writes the files of /etc that must not be the host's.
//
// Accounts: the user's own and those the system came with. Who else has an account
// here is nobody's business either, and a user known to LDAP alone would have no
// name inside. Names: those of the host's network are not asked for, and no list of
// domains is tried, for whoever resolves is the run's own: at 127.0.0.1 where it has the
// sockets, see DNSSockets. Where nobody listens there, a program hears so at once.
func etcFiles(home string) []Data {
	return []Data{
		{Path: "/etc/passwd", Content: passwd(readText("/etc/passwd"), self(home))},
		{Path: "/etc/group", Content: group(readText("/etc/group"), os.Getgid())},
		{Path: "/etc/hostname", Content: hostname + "\n"},
		{Path: "/etc/hosts", Content: "127.0.0.1 localhost " + hostname + "\n::1 localhost ip6-localhost ip6-loopback\n"},
		{Path: "/etc/nsswitch.conf", Content: "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"},
		{Path: "/etc/resolv.conf", Content: resolvConf},
		{Path: "/etc/ssh/ssh_config", Content: sshConfig},
	}
}

// resolvConf is the same for every run: what listens is known only when the sandbox stands.
const resolvConf = `# The run's own resolver, where it has one; the proxies resolve names in any case.
nameserver 127.0.0.1
options timeout:2 attempts:1 ndots:1
`

// account is one line of /etc/passwd.
type account struct {
	name  string
	uid   int
	gid   int
	home  string
	shell string
}

func self(home string) account {
	a := account{name: "user", uid: os.Getuid(), gid: os.Getgid(), home: home, shell: "/bin/sh"}
	if u, err := user.Current(); err == nil && !strings.ContainsAny(u.Username, ":\n") {
		a.name = u.Username
	}
	if _, err := os.Stat("/bin/bash"); err == nil {
		a.shell = "/bin/bash"
	}
	return a
}

// firstPerson is the lowest id that distributions give to people.
const firstPerson = 1000

// passwd keeps the accounts of the system and adds own.
func passwd(host string, own account) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:x:%d:%d::%s:%s\n", own.name, own.uid, own.gid, own.home, own.shell)
	for line := range strings.Lines(host) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 7 || fields[0] == own.name {
			continue
		}
		if uid, err := strconv.Atoi(fields[2]); err == nil && uid != own.uid && uid < firstPerson {
			b.WriteString(strings.Join(fields, ":") + "\n")
		}
	}
	b.WriteString("nobody:x:65534:65534::/nonexistent:/bin/false\n")
	return b.String()
}

// group keeps the groups of the system, without their members, and the run's own.
func group(host string, gid int) string {
	var b strings.Builder
	own := false
	for line := range strings.Lines(host) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 4 {
			continue
		}
		id, err := strconv.Atoi(fields[2])
		if err != nil || id >= firstPerson && id != gid {
			continue
		}
		own = own || id == gid
		fmt.Fprintf(&b, "%s:x:%d:\n", fields[0], id)
	}
	if !own && gid != 65534 {
		fmt.Fprintf(&b, "user:x:%d:\n", gid)
	}
	b.WriteString("nogroup:x:65534:\n")
	return b.String()
}

func readText(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return "" // then only our own lines are there
	}
	return string(text)
}
