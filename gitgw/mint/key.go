package mint

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"
)

// ParseKey reads an app's RSA private key in PEM, either as GitHub hands it out
// (PKCS#1, "RSA PRIVATE KEY") or as most tools convert it (PKCS#8, "PRIVATE
// KEY"). Errors never quote the input.
func ParseKey(pemBytes []byte) (*rsa.PrivateKey, error) {
	// What follows the first block is ignored, as OpenSSL does: some tools append
	// the public half.
	block, _ := pem.Decode(pemBytes)
	if block == nil {
		return nil, errors.New("parse app key: no PEM block")
	}
	switch block.Type {
	case "RSA PRIVATE KEY":
		key, err := x509.ParsePKCS1PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse app key: %w", err)
		}
		return key, nil
	case "PRIVATE KEY":
		parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse app key: %w", err)
		}
		key, ok := parsed.(*rsa.PrivateKey)
		if !ok {
			return nil, errors.New("parse app key: want an RSA key, since the app signs with RS256")
		}
		return key, nil
	default:
		return nil, fmt.Errorf("parse app key: PEM block is %q, want a private key", block.Type)
	}
}

// The window of an app's JWT: GitHub allows ten minutes ahead, and asks for one
// behind against clocks that differ.
const (
	jwtBehind = 60 * time.Second
	jwtAhead  = 540 * time.Second
)

// signJWT makes the JSON Web Token (RFC 7519, RS256 of RFC 7518) by which an
// app says who it is.
func signJWT(key *rsa.PrivateKey, issuer string, now time.Time) (string, error) {
	claims, err := json.Marshal(struct {
		IssuedAt  int64  `json:"iat"`
		ExpiresAt int64  `json:"exp"`
		Issuer    string `json:"iss"`
	}{now.Add(-jwtBehind).Unix(), now.Add(jwtAhead).Unix(), issuer})
	if err != nil {
		return "", fmt.Errorf("encode claims: %w", err)
	}
	// Written out, the token is thirty lines; a library would bring every other
	// algorithm along, and "none" with them.
	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + encode(claims)
	sum := sha256.Sum256([]byte(signed))
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign: %w", err)
	}
	return signed + "." + encode(signature), nil
}
