// Package h2spec checks the framing of HTTP/2 (RFC 9113 and 7541) of a daemon's listeners with h2spec.
package h2spec

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

// notHTTP2 is the case that has another outcome: a listener that also speaks HTTP/1.1 takes the preface for a request
// of that version, and refuses it with 400.
const notHTTP2 = "http2/3.5/2"

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// command returns a command for a repo.
func command(t *testing.T, repo string, arguments ...string) *exec.Cmd {
	cli := os.Getenv("IPFRS_CLI")
	if cli == "" {
		t.Fatal("IPFRS_CLI is not set: run this with cargo xtask go")
	}
	return exec.Command(cli, append([]string{"--repo", repo}, arguments...)...)
}

// settings returns the arguments of a daemon with TLS, whose certificate clients must not verify.
func settings(t *testing.T) []string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"localhost"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(30 * 24 * time.Hour),
	}
	certificate, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	check(t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(t, err)
	dir := t.TempDir()
	write := func(name string, content []byte) string {
		path := filepath.Join(dir, name)
		check(t, os.WriteFile(path, content, 0o600))
		return path
	}
	certificateFile := write("certificate.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}))
	keyFile := write("key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}))
	files := fmt.Sprintf("[{ certificate = %q, key = %q }]", certificateFile, keyFile)
	return []string{"--config", write("config.toml", []byte("[tls]\nenabled = true\ncertificates = "+files+"\n"))}
}

// startDaemon starts a daemon with the given arguments before the command. It returns the addresses of its listeners by
// name. The daemon ends with the test.
func startDaemon(t *testing.T, repo string, arguments ...string) map[string]string {
	t.Helper()
	start := []string{"gateway", "start", "--port", "0", "--grpc-port", "0", "--api-port", "0"}
	process := command(t, repo, append(arguments, start...)...)
	log := new(bytes.Buffer)
	process.Stderr = log
	stdout, err := process.StdoutPipe()
	check(t, err)
	check(t, process.Start())
	t.Cleanup(func() {
		// h2spec leaves connections open on which requests are not complete. SIGTERM would wait for them.
		process.Process.Kill()
		process.Wait()
		if t.Failed() {
			t.Log(log)
		}
	})
	listeners := map[string]string{}
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "Ready" {
			go io.Copy(io.Discard, stdout)
			return listeners
		}
		if name, address, found := strings.Cut(lines.Text(), ": "); found {
			listeners[name] = strings.TrimPrefix(strings.TrimPrefix(address, "http://"), "https://")
		}
	}
	t.Fatal("the daemon ended before it was ready")
	return nil
}

// run runs each case of a group and of those below it as a subtest. The cases in others have another outcome.
func run(t *testing.T, c *config.Config, group *spec.TestGroup, others ...string) {
	for i, test := range append(group.Tests, group.StrictTests...) {
		name := fmt.Sprintf("%s/%d", group.ID(), i+1)
		t.Run(name, func(t *testing.T) {
			connection, err := spec.Dial(c)
			check(t, err)
			defer connection.Close()
			result := test.Run(c, connection)
			for _, other := range others {
				if name == other {
					if result == nil {
						t.Fatal("it passes: remove it from the list")
					}
					return
				}
			}
			if result == spec.ErrSkipped {
				t.Fatal("the resource does not permit this case")
			}
			if result != nil {
				t.Fatalf("%s: %s\n%v", test.Desc, test.Requirement, result)
			}
		})
	}
	for _, inner := range group.Groups {
		run(t, c, inner, others...)
	}
}

// overTLS changes a configuration to TLS, after a check that the listener selects HTTP/2 (ALPN).
func overTLS(t *testing.T, c *config.Config) *config.Config {
	t.Helper()
	c.TLS, c.Insecure = true, true
	of, err := c.TLSConfig()
	check(t, err)
	connection, err := tls.Dial("tcp", c.Addr(), of)
	check(t, err)
	defer connection.Close()
	if protocol := connection.ConnectionState().NegotiatedProtocol; protocol != "h2" {
		t.Fatalf("the listener selects %q", protocol)
	}
	return c
}

// configure returns a configuration of h2spec for a listener without TLS and a path on it.
func configure(t *testing.T, listener, path string) *config.Config {
	t.Helper()
	host, text, err := net.SplitHostPort(listener)
	check(t, err)
	port, err := strconv.Atoi(text)
	check(t, err)
	return &config.Config{Host: host, Port: port, Path: path, Timeout: 2 * time.Second, MaxHeaderLen: 4000}
}

// startWithFile starts a daemon with a file that is larger than the windows of connection and stream. It returns the
// configuration of h2spec for it.
func startWithFile(t *testing.T, arguments ...string) *config.Config {
	t.Helper()
	repo := t.TempDir()
	file := filepath.Join(repo, "file")
	check(t, os.WriteFile(file, bytes.Repeat([]byte("ipfrs"), 100_000), 0o600))
	cid, err := command(t, repo, "add", "--quieter", file).Output()
	check(t, err)
	return configure(t, startDaemon(t, repo, arguments...)["Gateway"], "/ipfs/"+strings.TrimSpace(string(cid)))
}

// runAll runs all cases.
func runAll(t *testing.T, c *config.Config) {
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		run(t, c, group, notHTTP2)
	}
}

func TestGateway(t *testing.T) {
	runAll(t, startWithFile(t))
}

func TestGatewayOverTLS(t *testing.T) {
	runAll(t, overTLS(t, startWithFile(t, settings(t)...)))
}

// The generic cases alone: the listener responds to a request that is not gRPC before it has read all of it.
func TestGRPC(t *testing.T) {
	run(t, configure(t, startDaemon(t, t.TempDir())["gRPC"], "/"), generic.Spec())
}

func TestGRPCOverTLS(t *testing.T) {
	c := configure(t, startDaemon(t, t.TempDir(), settings(t)...)["gRPC"], "/")
	run(t, overTLS(t, c), generic.Spec())
}
