// Package rpc uses a daemon with go-ipfs-api, the small client of Kubo's RPC for Go.
package rpc

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	shell "github.com/ipfs/go-ipfs-api"
)

// startDaemon starts a daemon with an empty repo, which ends with the test. It returns the URL of the API.
func startDaemon(t *testing.T) string {
	t.Helper()
	cli := os.Getenv("IPFRS_CLI")
	if cli == "" {
		t.Fatal("IPFRS_CLI is not set: run this with cargo xtask go")
	}
	process := exec.Command(cli, "--repo", t.TempDir(), "gateway", "start", "--port", "0", "--grpc-port", "0", "--api-port", "0")
	process.Stderr = os.Stderr
	stdout, err := process.StdoutPipe()
	if err == nil {
		err = process.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		process.Process.Signal(syscall.SIGTERM)
		process.Wait()
	})
	api := ""
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if url, found := strings.CutPrefix(lines.Text(), "API: "); found {
			api = url
		}
		if lines.Text() == "Ready" {
			go io.Copy(io.Discard, stdout)
			return api
		}
	}
	t.Fatal("the daemon ended before it was ready")
	return ""
}

func TestShell(t *testing.T) {
	sh := shell.NewShell(startDaemon(t))
	cid, err := sh.Add(strings.NewReader("for go"))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := sh.Cat(cid)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil || string(content) != "for go" {
		t.Fatalf("%q, %v", content, err)
	}
	pins, err := sh.Pins()
	if _, ok := pins[cid]; err != nil || !ok {
		t.Fatalf("%s is not among %v: %v", cid, pins, err)
	}
	block, err := sh.BlockPut([]byte("block"), "raw", "sha3-512", 64)
	if err != nil {
		t.Fatal(err)
	}
	if data, err := sh.BlockGet(block); err != nil || !bytes.Equal(data, []byte("block")) {
		t.Fatalf("%q, %v", data, err)
	}
	if _, err := sh.Cat("bad"); err == nil || !strings.Contains(err.Error(), "path does not have enough components") {
		t.Fatalf("a malformed path: %v", err)
	}
	node, err := sh.DagPut(`{"a":[1,2]}`, "dag-json", "dag-cbor")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	if err := sh.DagGet(node+"/a", &out); err != nil || len(out) != 2 {
		t.Fatalf("%v, %v", out, err)
	}
}
