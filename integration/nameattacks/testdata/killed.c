// Processes whose threads make files, and which are killed or become another program in
// the middle of it. Everybody else goes on.
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static void *work(void *arg)
{
	char a[32], b[32];
	snprintf(a, sizeof a, "k%ld", (long)arg);
	snprintf(b, sizeof b, "l%ld", (long)arg);
	for (;;) {
		close(open(a, O_CREAT | O_WRONLY, 0600));
		rename(a, b);
		close(open(".env", O_CREAT | O_WRONLY, 0600));
		unlink(b);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	double seconds = argc > 1 ? atof(argv[1]) : 1;
	struct timespec start, now;
	clock_gettime(CLOCK_MONOTONIC, &start);
	long rounds = 0, wrong = 0;
	for (;; rounds++) {
		clock_gettime(CLOCK_MONOTONIC, &now);
		if (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) / 1e9 > seconds)
			break;
		pid_t pid = fork();
		if (pid == 0) {
			pthread_t t;
			for (long i = 0; i < 4; i++)
				pthread_create(&t, NULL, work, (void *)i);
			usleep(rounds * 37 % 900);
			if (rounds % 2)
				execl("/bin/true", "true", NULL);
			for (;;)
				pause();
		}
		usleep(rounds * 53 % 1500);
		if (rounds % 2 == 0)
			kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		int fd = open("between", O_CREAT | O_EXCL | O_RDWR, 0600);
		if (fd < 0 || close(fd) || unlink("between"))
			wrong++;
	}
	fprintf(stderr, "%ld rounds\n", rounds);
	printf("wrong: %ld\n", wrong);
	return 0;
}
