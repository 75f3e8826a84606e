package gitgw

import (
	"context"
	"io"
	"net/http"
)

// heard sends a request that a forge must not leave without an answer: none, or one that
// stops in the middle, ends it after Limits.Upstream of silence. The watch ends when the
// answer's body is closed.
func (u *upstream) heard(req *http.Request, send func(*http.Request) (*http.Response, error)) (*http.Response, error) {
	if u.silence <= 0 {
		return send(req)
	}
	ctx, dog, rest := newWatchdog(req.Context(), u.silence)
	resp, err := send(req.WithContext(ctx))
	if err != nil {
		rest()
		return nil, err
	}
	dog.touch()
	resp.Body = &watchedBody{answerReader: answerReader{r: resp.Body, touch: dog.touch}, close: resp.Body.Close, rest: rest}
	return resp, nil
}

// watchedBody is an answer whose every byte is a sign of life.
type watchedBody struct {
	answerReader
	close func() error
	rest  context.CancelFunc
}

var _ io.ReadCloser = (*watchedBody)(nil)

func (b *watchedBody) Close() error {
	// The body first: a connection whose request is cancelled is not used again.
	err := b.close()
	b.rest()
	return err
}
