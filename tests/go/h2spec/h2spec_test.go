// Package h2spec checks the framing of HTTP/2 (RFC 9113 and 7541) of a daemon's listeners with h2spec.
package h2spec

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
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

// notHTTP2 is the case that has another outcome without TLS: a listener that also speaks HTTP/1.1 takes the preface for
// a request of that version, and refuses it with 400.
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

// startDaemon starts a daemon. It returns the addresses of its listeners by name. The daemon ends with the test.
func startDaemon(t *testing.T, repo string) map[string]string {
	t.Helper()
	process := command(t, repo, "gateway", "start", "--port", "0", "--grpc-port", "0", "--api-port", "0")
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
			listeners[name] = strings.TrimPrefix(address, "http://")
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

// configure returns a configuration of h2spec for a listener without TLS and a path on it.
func configure(t *testing.T, listener, path string) *config.Config {
	t.Helper()
	host, text, err := net.SplitHostPort(listener)
	check(t, err)
	port, err := strconv.Atoi(text)
	check(t, err)
	return &config.Config{Host: host, Port: port, Path: path, Timeout: 2 * time.Second, MaxHeaderLen: 4000}
}

// All cases, with a file that is larger than the windows of connection and stream.
func TestGateway(t *testing.T) {
	repo := t.TempDir()
	file := filepath.Join(repo, "file")
	check(t, os.WriteFile(file, bytes.Repeat([]byte("ipfrs"), 100_000), 0o600))
	cid, err := command(t, repo, "add", "--quieter", file).Output()
	check(t, err)
	c := configure(t, startDaemon(t, repo)["Gateway"], "/ipfs/"+strings.TrimSpace(string(cid)))
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		run(t, c, group, notHTTP2)
	}
}

// The generic cases alone: the listener responds to a request that is not gRPC before it has read all of it.
func TestGRPC(t *testing.T) {
	run(t, configure(t, startDaemon(t, t.TempDir())["gRPC"], "/"), generic.Spec())
}
