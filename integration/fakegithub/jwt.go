package fakegithub

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"
)

// The texts GitHub answers a bad App JWT with, all under 401 but for the
// last, which is 404.
var (
	errJWTDecode   = errors.New("A JSON web token could not be decoded") //nolint:staticcheck // GitHub's own text
	errJWTIssued   = errors.New("'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued")
	errJWTExpired  = errors.New("'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires")
	errJWTTooFar   = errors.New("'Expiration time' claim ('exp') is too far in the future")
	errJWTNoIssuer = errors.New("Integration not found") //nolint:staticcheck // GitHub's own text
)

// jwtLifetime is how far ahead exp may lie.
const jwtLifetime = 10 * time.Minute

// verifyJWT checks an App's assertion (RFC 7519, RS256) at GitHub's time: a
// good signature, iat not in the future, exp in the future by at most ten
// minutes, iss the App's id or client id.
func (s *Server) verifyJWT(token string) error {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return errJWTDecode
	}
	var header struct {
		Alg string `json:"alg"`
	}
	// iss may be a number or a string, as GitHub takes both.
	var claims struct {
		Iat json.Number     `json:"iat"`
		Exp json.Number     `json:"exp"`
		Iss json.RawMessage `json:"iss"`
	}
	if decodePart(parts[0], &header) != nil || header.Alg != "RS256" || decodePart(parts[1], &claims) != nil {
		return errJWTDecode
	}
	sig, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil {
		return errJWTDecode
	}
	sum := sha256.Sum256([]byte(parts[0] + "." + parts[1]))
	if rsa.VerifyPKCS1v15(&s.key.PublicKey, crypto.SHA256, sum[:], sig) != nil {
		return errJWTDecode
	}
	now := s.Now()
	iat, err := claims.Iat.Int64()
	if err != nil || time.Unix(iat, 0).After(now) {
		return errJWTIssued
	}
	exp, err := claims.Exp.Int64()
	if err != nil || !time.Unix(exp, 0).After(now) {
		return errJWTExpired
	}
	if time.Unix(exp, 0).After(now.Add(jwtLifetime)) {
		return errJWTTooFar
	}
	iss := strings.Trim(string(claims.Iss), `"`)
	if iss != strconv.FormatInt(s.opts.AppID, 10) && iss != s.opts.ClientID {
		return errJWTNoIssuer
	}
	return nil
}

func decodePart(part string, into any) error {
	raw, err := base64.RawURLEncoding.DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}
