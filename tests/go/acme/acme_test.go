// Package acme lets a daemon get its certificates from pebble, the test authority of Let's Encrypt, on loopback.
package acme

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// limit is the time that one step may take.
const limit = 20 * time.Second

// live is a URL of every daemon here.
const live = "https://a.test/health/live"

// month is a validity in seconds. The daemon would warn of a certificate that expires within a week.
const month = 30 * 24 * 3600

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// await waits until a condition holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("not in time: " + what)
		}
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

// daemon is a running daemon. It ends with the test at the latest.
type daemon struct {
	logFile string
	stop    func()
}

// startDaemon starts a daemon with a certificate for these names.
func startDaemon(t *testing.T, a *authority, repo string, domains ...string) *daemon {
	t.Helper()
	config := fmt.Sprintf("[tls]\nenabled = true\n[tls.acme]\ndomains = [\"%s\"]\naccept_terms = true\n"+
		"contact = \"admin@a.test\"\ndirectory = %q\nroot = %q\n", strings.Join(domains, `", "`), a.directory, a.issuer)
	check(t, os.WriteFile(filepath.Join(repo, "config.toml"), []byte(config), 0o600))
	host, port, _ := net.SplitHostPort(a.address)
	listen := []string{"--host", host, "--port", port, "--grpc-port", "0", "--api-port", "0"}
	process := command(t, repo, append([]string{"gateway", "start"}, listen...)...)
	log, err := os.CreateTemp(t.TempDir(), "")
	check(t, err)
	process.Stderr = log
	stdout, err := process.StdoutPipe()
	check(t, err)
	check(t, process.Start())
	log.Close()
	d := &daemon{logFile: log.Name()}
	d.stop = sync.OnceFunc(func() {
		process.Process.Signal(syscall.SIGTERM)
		process.Wait()
		if t.Failed() {
			t.Log(d.log())
		}
	})
	t.Cleanup(d.stop)
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if lines.Text() == "Ready" {
			go io.Copy(io.Discard, stdout)
			return d
		}
	}
	t.Fatal("the daemon ended before it was ready")
	return nil
}

func (d *daemon) log() string {
	content, _ := os.ReadFile(d.logFile)
	return string(content)
}

// awaitLog waits until the daemon has logged a text.
func (d *daemon) awaitLog(t *testing.T, text string) {
	t.Helper()
	await(t, text, func() bool { return strings.Contains(d.log(), text) })
}

// newClient returns a client that trusts pebble alone and finds every name at the daemon. It keeps its connection.
func newClient(a *authority, clock func() time.Time) *http.Client {
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, a.address)
	}
	config := &tls.Config{RootCAs: a.roots, Time: clock}
	return &http.Client{Transport: &http.Transport{DialContext: dial, TLSClientConfig: config}, Timeout: limit}
}

// get requests a URL. It returns the content and the certificate of the connection, which the client has verified.
func get(client *http.Client, url string) (string, *x509.Certificate, error) {
	response, err := client.Get(url)
	if err != nil {
		return "", nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", response.Status, content)
	}
	return string(content), response.TLS.PeerCertificates[0], err
}

// mustGet requests a URL over a new connection.
func mustGet(t *testing.T, a *authority, url string) (string, *x509.Certificate) {
	t.Helper()
	content, certificate, err := get(newClient(a, nil), url)
	check(t, err)
	return content, certificate
}

// awaitCertificate waits until new connections have a certificate other than the old one, and returns it.
func awaitCertificate(t *testing.T, a *authority, old *x509.Certificate) (got *x509.Certificate) {
	t.Helper()
	await(t, "a new certificate", func() bool {
		_, certificate, err := get(newClient(a, nil), live)
		got = certificate
		return err == nil && !certificate.Equal(old)
	})
	return got
}

// The daemon proves both names by TLS-ALPN-01. It serves content with a certificate for them, also after a restart.
func TestCertificateIsObtainedAndKept(t *testing.T) {
	a, repo := startAuthority(t, month), t.TempDir()
	add := command(t, repo, "add", "--quieter")
	add.Stdin = strings.NewReader("over HTTPS")
	cid, err := add.Output()
	check(t, err)
	path := "/ipfs/" + strings.TrimSpace(string(cid))

	d := startDaemon(t, a, repo, "a.test", "b.test")
	first := awaitCertificate(t, a, nil)
	if names := slices.Sorted(slices.Values(first.DNSNames)); !slices.Equal(names, []string{"a.test", "b.test"}) {
		t.Fatalf("the certificate is for %v", names)
	}
	if content, _ := mustGet(t, a, "https://b.test"+path); content != "over HTTPS" {
		t.Fatalf("the daemon serves %q", content)
	}
	challenge := &tls.Config{ServerName: "a.test", NextProtos: []string{"acme-tls/1"}, InsecureSkipVerify: true}
	if _, err := tls.Dial("tcp", a.address, challenge); err == nil {
		t.Error("the daemon still answers the challenge")
	}
	d.stop()

	startDaemon(t, a, repo, "a.test", "b.test")
	content, second := mustGet(t, a, "https://a.test"+path)
	if content != "over HTTPS" || !second.Equal(first) || a.orders.Load() != 1 {
		t.Fatalf("after a restart: %q, serial %d, %d orders", content, second.SerialNumber, a.orders.Load())
	}
}

// The authority refuses every request once, because its nonce is spent (RFC 8555, 6.5).
func TestRequestsWithBadNoncesAreRepeated(t *testing.T) {
	a := startAuthority(t, month)
	a.spends = true
	startDaemon(t, a, t.TempDir(), "a.test")
	awaitCertificate(t, a, nil)
	if orders := a.orders.Load(); orders != 2 {
		t.Fatalf("%d requests for an order: the first must be refused, the second not", orders)
	}
}

// A certificate with a third of its time left is replaced while the daemon runs. Open connections go on.
func TestCertificateIsRenewed(t *testing.T) {
	a, repo := startAuthority(t, 10), t.TempDir()
	startDaemon(t, a, repo, "a.test")
	first := awaitCertificate(t, a, nil)
	a.ordering.Lock()
	release := sync.OnceFunc(a.ordering.Unlock)
	defer release()
	await(t, "a second order", func() bool { return a.orders.Load() == 2 })
	// The certificate may expire before the handshake.
	client := newClient(a, func() time.Time { return first.NotBefore })
	if _, stored, err := get(client, live); err != nil || !stored.Equal(first) {
		t.Fatalf("the old certificate is not used until there is a new one: %v", err)
	}
	release()
	awaitCertificate(t, a, first)
	if _, kept, err := get(client, live); err != nil || !kept.Equal(first) {
		t.Fatalf("the old connection has ended: %v", err)
	}
}

// The daemon logs why it gets no certificate, and goes on with what it has.
func TestCauseOfFailureIsLogged(t *testing.T) {
	a, repo := startAuthority(t, month), t.TempDir()
	check(t, a.names.AddBlockedDomain("blocked.test"))
	d := startDaemon(t, a, repo, "blocked.test")
	d.awaitLog(t, "blocked.test is a forbidden domain")
	response, err := http.Get("http://" + a.address + "/health/live")
	check(t, err)
	response.Body.Close()
	d.stop()
	d = startDaemon(t, a, repo, "a.test")
	first := awaitCertificate(t, a, nil)
	d.stop()

	for _, it := range []struct{ domain, directory, cause string }{
		{"blocked.test", a.directory, "blocked.test is a forbidden domain"},
		{"a.unknown", a.directory, `Could not resolve URL "a.unknown"`},
		{"b.test", "https://127.0.0.1:1/dir", "Connection refused"},
	} {
		a.directory = it.directory
		d := startDaemon(t, a, repo, "a.test", it.domain)
		d.awaitLog(t, it.cause)
		if _, certificate := mustGet(t, a, live); !certificate.Equal(first) {
			t.Fatalf("%s: the certificate has changed", it.cause)
		}
		d.stop()
	}
}
