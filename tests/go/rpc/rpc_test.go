// Package rpc uses a gateway with go-ipfs-api, the small client of Kubo's RPC for Go.
//
// IPFRS_API names the address of the daemon.
package rpc

import (
	"bytes"
	"io"
	"os"
	"strings"
	"testing"

	shell "github.com/ipfs/go-ipfs-api"
)

func TestShell(t *testing.T) {
	address := os.Getenv("IPFRS_API")
	if address == "" {
		t.Skip("IPFRS_API is not set: run this with the address of a daemon")
	}
	sh := shell.NewShell(address)
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
