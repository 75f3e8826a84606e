// Makes, moves and removes files for some seconds while ten thousand signals a second come,
// whose handler has calls interrupted. A call that says EINTR must not have been done.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static volatile long came;

static void handler(int sig)
{
	(void)sig;
	came++;
}

static long wrong, interrupted, calls;

// done reports whether a call was, and counts those whose answer does not fit the disk.
static int done(const char *what, int r, const char *there)
{
	int e = errno;
	struct stat st;
	calls++;
	int is = lstat(there, &st) == 0;
	if (r >= 0) {
		if (!is) {
			wrong++;
			printf("%s: done, and it is not\n", what);
		}
		return 1;
	}
	if (e == EINTR) {
		interrupted++;
		if (is) {
			wrong++;
			printf("%s: interrupted, and it is done\n", what);
		}
		return 0;
	}
	wrong++;
	printf("%s: %d\n", what, e);
	return 0;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	struct sigaction sa = {.sa_handler = handler};
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval often = {{0, 100}, {0, 100}};
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	setitimer(ITIMER_REAL, &often, NULL);
	for (long i = 0;; i++) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 > seconds)
			break;
		char a[32], b[32], c[32];
		snprintf(a, sizeof a, "s%ld", i);
		snprintf(b, sizeof b, "t%ld", i);
		snprintf(c, sizeof c, "u%ld", i);
		int fd = open(a, O_CREAT | O_EXCL | O_WRONLY, 0600);
		if (done("open", fd, a)) {
			close(fd);
			if (done("link", link(a, c), c))
				unlink(c);
			if (done("rename", rename(a, b), b))
				unlink(b);
			else
				unlink(a);
		}
		if (done("mkdir", mkdir(a, 0700), a))
			rmdir(a);
		if (done("symlink", symlink("x", a), a))
			unlink(a);
		if (done("mkfifo", mkfifo(a, 0600), a))
			unlink(a);
		int s = socket(AF_UNIX, SOCK_STREAM, 0);
		struct sockaddr_un un = {AF_UNIX, ""};
		snprintf(un.sun_path, sizeof un.sun_path, "%s", a);
		if (s >= 0 && done("bind", bind(s, (struct sockaddr *)&un, sizeof un), a))
			unlink(a);
		close(s);
		errno = 0;
		fd = open(".env", O_CREAT | O_WRONLY, 0600);
		close(fd);
	}
	struct itimerval none = {{0, 0}, {0, 0}};
	setitimer(ITIMER_REAL, &none, NULL);
	fprintf(stderr, "%ld signals, %ld calls, %ld interrupted\n", came, calls, interrupted);
	printf("wrong: %ld\n", wrong);
	return 0;
}
