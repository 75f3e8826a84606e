package sandbox

import "testing"

func TestRealSmoke(t *testing.T) {
	w := newWorld(t)
	out := script(t, w.profile(), "id; pwd; ls -la / /etc /run /run/postern $HOME; cat /proc/mounts; cat /proc/self/status | grep -i -e cap -e seccomp -e nonew; ps ax; echo; ls -l /proc/sysrq-trigger /proc/sys/kernel/core_pattern; cat /proc/sys/kernel/core_pattern; echo x > /proc/sys/kernel/domainname; cat /proc/sys/net/ipv4/ip_forward; exit 7")
	t.Log(out.stdout, out.stderr, out.status)
}
