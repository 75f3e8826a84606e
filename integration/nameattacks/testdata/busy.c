// Writes programs and runs them at once: whoever still had one open for writing would keep
// it from being run.
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long n = argc > 1 ? atol(argv[1]) : 100, wrong = 0;
	char *env[] = {NULL};
	for (long i = 0; i < n; i++) {
		char name[32];
		snprintf(name, sizeof name, "./p%ld", i % 7);
		int flags = O_CREAT | O_WRONLY | O_CLOEXEC | (i % 3 == 0 ? O_EXCL : O_TRUNC), mode = i % 2 ? 0755 : 0644;
		unlink(name);
		int fd = open(name, flags, mode);
		if (fd < 0 || write(fd, "#!/bin/true\n", 12) != 12) {
			wrong++;
			continue;
		}
		close(fd);
		if (mode == 0644 && chmod(name, 0755) != 0)
			wrong++;
		char *args[] = {name, NULL};
		pid_t pid;
		int status, e = posix_spawn(&pid, name, NULL, NULL, args, env);
		if (e != 0) {
			printf("%ld: %s\n", i, strerror(e));
			wrong++;
		} else if (waitpid(pid, &status, 0) != pid || status != 0) {
			wrong++;
		}
	}
	printf("wrong: %ld\n", wrong);
	return 0;
}
