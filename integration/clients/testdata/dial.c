/* dial HOST PORT PATH: gets a path over plain HTTP by getaddrinfo and connect alone. */
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *all, *at;
	char buf[4096];
	ssize_t n;
	int fd = -1, err;

	if (argc != 4)
		return 64;
	if ((err = getaddrinfo(argv[1], argv[2], &hints, &all)) != 0) {
		fprintf(stderr, "getaddrinfo: %s\n", gai_strerror(err));
		return 2;
	}
	for (at = all; at != NULL; at = at->ai_next) {
		fd = socket(at->ai_family, at->ai_socktype, at->ai_protocol);
		if (fd >= 0 && connect(fd, at->ai_addr, at->ai_addrlen) == 0)
			break;
		if (fd >= 0)
			close(fd);
		fd = -1;
	}
	if (fd < 0) {
		perror("connect");
		return 3;
	}
	n = snprintf(buf, sizeof buf, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", argv[3], argv[1]);
	if (write(fd, buf, n) != n)
		return 4;
	while ((n = read(fd, buf, sizeof buf)) > 0)
		fwrite(buf, 1, n, stdout);
	return n < 0 ? 5 : 0;
}
