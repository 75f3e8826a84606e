package sandbox

// sshConfig is the system's configuration of ssh inside, so that every ssh, scp and
// rsync finds the way that git finds by GIT_SSH_COMMAND. The home is new, so no host key
// is known: the first is taken and kept. A socket that a host's ssh left would lead past
// the proxy. The first value of an option counts; what else the host's says comes last.
const sshConfig = `Host localhost 127.0.0.1 ::1
	ProxyCommand none
Host *
	ProxyCommand ` + InnerExe + ` connect %h %p
	StrictHostKeyChecking accept-new
	ControlMaster no
	ControlPath none
	Include /etc/ssh/ssh_config.d/*.conf
`
