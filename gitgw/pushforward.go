package gitgw

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
)

// forward mints, proves the token, sends the push and relays the answer.
func (p *push) forward(clientCtx context.Context) bool {
	token, err := p.mint(clientCtx)
	if err != nil {
		return p.fail(Failed, codeOf(err, CodeNoToken), p.g.notice(err.Error()))
	}
	defer p.revoke(clientCtx, token)
	p.record.TokenID = token.ID()
	p.redact.know(token)

	// A pack that is being streamed cannot be sent twice, so whatever can fail
	// for a reason that passes is done before its first byte.
	offered, err := retrying(clientCtx, p.limits.Retry, func(error) {
		p.rep.progress(p.g.notice("waiting for "+p.up.forge.Host+" to accept the new token") + "\n")
		_ = p.rep.flush()
	}, func() (Capabilities, error) { return p.up.preflight(clientCtx, token) })
	switch {
	case clientCtx.Err() != nil:
		p.end(Aborted, p.whyGone().Error())
		return false
	case err != nil:
		return p.fail(Failed, CodeForgeRefused, p.g.notice(err.Error()))
	}
	caps := p.head.Capabilities.forUpstream(offered)
	if lacks := missing(p.head.Capabilities, caps, offered); lacks != "" {
		return p.fail(Failed, CodeForgeLacks, p.g.notice(p.up.forge.Host+" "+lacks))
	}
	head := *p.head
	head.Capabilities = caps
	var encoded bytes.Buffer
	if err := head.Encode(&encoded); err != nil {
		return p.fail(Failed, CodeEncode, p.g.notice(err.Error()))
	}

	// From here on the push outlives its client: once the forge has the last
	// byte, the refs move whether or not anybody waits, and the audit wants to
	// know. A client that dies earlier is noticed where its pack is read.
	total, cancel := p.limits.within(context.WithoutCancel(clientCtx))
	defer cancel()
	ctx, dog, rest := newWatchdog(total, p.limits.Upstream)
	defer rest()
	up := &upload{head: bytes.NewReader(encoded.Bytes()), moved: dog.touch}
	ctx, part := p.endWithRun(ctx, up)
	defer part()
	size := int64(-1)
	if head.DeletesOnly() {
		// Some clients append an empty pack; receive-pack does not expect one.
		size = int64(encoded.Len())
	} else {
		from, packed := p.packReader()
		if packed >= 0 {
			size = int64(encoded.Len()) + packed
		} else if most := p.packLimit(); most > 0 {
			from = &limited{r: from, left: most, most: most, over: func() { p.over.Store(true) }}
		}
		up.pack = from
	}
	resp, err := p.up.push(ctx, up, size, token)
	defer func() { p.record.PackBytes = up.sent.Load() }()
	if err != nil {
		return p.failedPush(up, errors.Join(err, context.Cause(total)))
	}
	defer func() { _ = resp.Body.Close() }()
	p.record.UpstreamStatus = resp.StatusCode
	answer := &answerReader{r: resp.Body, touch: dog.touch}
	y := newRelay(p.rep, &p.redact, answer, caps.SideBand64k, p.head.Capabilities.ReportStatusV2, p.record.Refs)
	if err := y.run(); err != nil {
		return p.brokenReport(y, up, errors.Join(err, context.Cause(total)), answer.cut)
	}
	// Reading to the end gives the connection back; a forge that refuses early
	// leaves a pack in the client that must be read before it hears the end.
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	drained := p.body.drain()
	p.rep.end()
	p.conclude(y)
	return drained == nil && p.rep.lost == nil
}

// missing says what the forge lacks of what the client needs, "" for nothing.
func missing(client, agreed, offered Capabilities) string {
	switch {
	case client.Atomic && !agreed.Atomic:
		return "does not support --atomic push"
	case client.PushOptions && !agreed.PushOptions:
		return "does not support push options"
	case offered.format() != client.format():
		return fmt.Sprintf("has a %s repository, and this one is %s", offered.format(), client.format())
	case !agreed.reports():
		return "sends no status report"
	}
	return ""
}
