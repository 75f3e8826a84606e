//go:build linux

package clients

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health/grpc_health_v1"
)

// grpcCommand makes the test binary a gRPC client, as a program in Go is one.
const grpcCommand = "__grpc"

// grpcClient asks target for its health. Certificates are those of SSL_CERT_FILE, the
// proxy is that of HTTPS_PROXY: what every Go program has.
func grpcClient(target string) int {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(credentials.NewTLS(nil)))
	if err == nil {
		defer conn.Close()
		var r *grpc_health_v1.HealthCheckResponse
		if r, err = grpc_health_v1.NewHealthClient(conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err == nil {
			fmt.Println(r.GetStatus())
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}
