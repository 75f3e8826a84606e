// A thousand processes at a time, each of which makes, writes, moves and reads files, and
// tries a forbidden one.
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int one(int i)
{
	char dir[32], a[64], b[64], text[32], got[32];
	snprintf(dir, sizeof dir, "c%d", i);
	if (mkdir(dir, 0755))
		return 1;
	for (int j = 0; j < 5; j++) {
		snprintf(a, sizeof a, "c%d/a%d", i, j);
		snprintf(b, sizeof b, "c%d/b%d", i, j);
		int n = snprintf(text, sizeof text, "%d %d\n", i, j);
		int fd = open(a, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (fd < 0 || write(fd, text, n) != n || close(fd))
			return 2;
		if (rename(a, b))
			return 3;
		fd = open(b, O_RDWR);
		if (fd < 0 || read(fd, got, sizeof got) != n || memcmp(got, text, n) || close(fd))
			return 4;
	}
	snprintf(a, sizeof a, "c%d/.env", i);
	int fd = open(a, O_CREAT | O_WRONLY, 0600);
	if (fd >= 0)
		close(fd);
	else if (errno != EACCES)
		return 5;
	return 0;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 1000, wrong = 0, gate[2];
	if (pipe(gate))
		return 1;
	for (int i = 0; i < n; i++) {
		pid_t pid = fork();
		if (pid < 0) {
			printf("fork: %s\n", strerror(errno));
			wrong++;
		}
		if (pid == 0) {
			char c;
			close(gate[1]);
			read(gate[0], &c, 1); // all at once
			_exit(one(i));
		}
	}
	close(gate[1]);
	int status;
	while (wait(&status) > 0)
		if (status != 0) {
			printf("status %x\n", status);
			wrong++;
		}
	printf("wrong: %d\n", wrong);
	return 0;
}
