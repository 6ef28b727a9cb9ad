// Package tests exchanges content between boxo, the Go library of Kubo, and a daemon, by Bitswap on loopback.
package tests

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"testing"
)

// anyPort lets the system choose the ports.
var anyPort = []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"}

// must returns a function that returns the value, or fails the test.
func must[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must0(t, err)
		return value
	}
}

func must0(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func randomBytes(size int) []byte {
	content := make([]byte, size)
	rand.Read(content)
	return content
}

// manyFiles returns so many files with long names that importers shard their directory.
func manyFiles() map[string][]byte {
	files := map[string][]byte{}
	for i := range 1_200 {
		name := fmt.Sprintf("%04d-%0200d.txt", i, 0)
		files[name] = fmt.Appendf(nil, "%d %x", i, randomBytes(8))
	}
	return files
}

func sameFiles(a, b map[string][]byte) bool {
	return maps.EqualFunc(a, b, bytes.Equal)
}

// Both sides receive over connections of either side, by TCP and by QUIC.
func TestContentIsExchangedInBothDirections(t *testing.T) {
	for _, transport := range []string{"tcp", "udp"} {
		for _, opener := range []string{"boxo", "the daemon"} {
			t.Run(fmt.Sprintf("%s opened by %s", transport, opener), func(t *testing.T) {
				d, n := startDaemon(t), startNode(t, newKey(t), newStore(), anyPort...)
				if opener == "boxo" {
					must0(t, n.host.Connect(t.Context(), d.address(transport)))
				} else {
					d.connect(n.address(t, transport))
				}
				exchange(t, d, n)
			})
		}
	}
}

func exchange(t *testing.T, d *daemon, n *node) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	for _, size := range []int{1, 1_000, 300_000, 20_000_000} {
		content := randomBytes(size)
		got, err := n.getFile(ctx, d.add(map[string][]byte{"file": content}))
		must0(t, err)
		if !bytes.Equal(got, content) {
			t.Errorf("boxo received other bytes than the %d that the daemon has", size)
		}
		content = randomBytes(size)
		got, err = d.get(n.addFile(t, content).Cid().String())
		must0(t, err)
		if !bytes.Equal(got, content) {
			t.Errorf("the daemon received other bytes than the %d that boxo has", size)
		}
	}

	files := manyFiles()
	inDirectory := map[string][]byte{}
	for name, content := range files {
		inDirectory["d/"+name] = content
	}
	got, isSharded, err := n.getDirectory(ctx, d.add(inDirectory))
	must0(t, err)
	if !isSharded || !sameFiles(got, files) {
		t.Errorf("boxo received %d files of %d, sharded: %v", len(got), len(files), isSharded)
	}
	files = manyFiles()
	archive, err := d.get(n.addShardedDirectory(t, files).String() + "?format=tar")
	must0(t, err)
	if got := unpack(t, archive); !sameFiles(got, files) {
		t.Errorf("the daemon received %d files of %d", len(got), len(files))
	}
}

// unpack returns the files in a TAR, by their base names.
func unpack(t *testing.T, archive []byte) map[string][]byte {
	files := map[string][]byte{}
	reader := tar.NewReader(bytes.NewReader(archive))
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must0(t, err)
		if header.Typeflag == tar.TypeReg {
			files[path.Base(header.Name)] = must(io.ReadAll(reader))(t)
		}
	}
}

// A peer that serves a file ends in the middle, and starts again.
func TestDownloadContinuesWhenThePeerReturns(t *testing.T) {
	d, key, store := startDaemon(t), newKey(t), newStore()
	served := store.reads.notifyAt(20)
	n := startNode(t, key, store, anyPort...)
	content := randomBytes(20_000_000)
	root := n.addFile(t, content).Cid().String()
	port := n.listenAddress(t, "tcp").String()
	d.connect(n.address(t, "tcp"))
	d.stayConnected(n.address(t, "tcp"))

	returned := make(chan struct{})
	go func() {
		defer close(returned)
		<-served
		n.close()
		startNode(t, key, store, port)
	}()
	got, err := d.get(root)
	must0(t, err)
	if !bytes.Equal(got, content) {
		t.Error("the daemon received other bytes")
	}
	<-returned
}

// A peer that fetches a file loses its connections in the middle, and opens another one.
func TestPeerFetchesTheRestWhenItReturns(t *testing.T) {
	d, store := startDaemon(t), newStore()
	received := store.writes.notifyAt(20)
	n := startNode(t, newKey(t), store, anyPort...)
	content := randomBytes(20_000_000)
	root := d.add(map[string][]byte{"file": content})
	address := d.address("tcp")
	must0(t, n.host.Connect(t.Context(), address))
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()

	returned := make(chan error, 1)
	go func() {
		<-received
		err := n.host.Network().ClosePeer(address.ID)
		returned <- errors.Join(err, n.host.Connect(ctx, address))
	}()
	got, err := n.getFile(ctx, root)
	must0(t, err)
	must0(t, <-returned)
	if !bytes.Equal(got, content) {
		t.Error("boxo received other bytes")
	}
}
