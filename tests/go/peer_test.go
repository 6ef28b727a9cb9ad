package tests

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"sync/atomic"
	"testing"

	"github.com/ipfs/boxo/bitswap"
	"github.com/ipfs/boxo/bitswap/network/bsnet"
	"github.com/ipfs/boxo/blockservice"
	"github.com/ipfs/boxo/blockstore"
	"github.com/ipfs/boxo/chunker"
	"github.com/ipfs/boxo/ipld/merkledag"
	"github.com/ipfs/boxo/ipld/unixfs/importer"
	unixfs "github.com/ipfs/boxo/ipld/unixfs/io"
	blocks "github.com/ipfs/go-block-format"
	"github.com/ipfs/go-cid"
	"github.com/ipfs/go-datastore"
	"github.com/ipfs/go-datastore/sync"
	ipld "github.com/ipfs/go-ipld-format"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/sec"
	basichost "github.com/libp2p/go-libp2p/p2p/host/basic"
	"github.com/libp2p/go-libp2p/p2p/host/eventbus"
	"github.com/libp2p/go-libp2p/p2p/host/peerstore/pstoremem"
	"github.com/libp2p/go-libp2p/p2p/muxer/yamux"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/p2p/net/upgrader"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/quicreuse"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/multiformats/go-multiaddr"
	quicgo "github.com/quic-go/quic-go"
)

// node exchanges blocks by boxo's Bitswap with the peers to which it is connected. It keeps them in memory.
type node struct {
	host  host.Host
	dag   ipld.DAGService
	close func()
}

// watchedStore counts the blocks that are read and written.
type watchedStore struct {
	blockstore.Blockstore
	reads, writes counter
}

// counter closes a channel when it reaches a number.
type counter struct {
	count   atomic.Int64
	number  int64
	reached chan struct{}
}

// notifyAt returns a channel that is closed when the counter reaches a number. It must not be in use yet.
func (c *counter) notifyAt(number int64) <-chan struct{} {
	c.number, c.reached = number, make(chan struct{})
	return c.reached
}

func (c *counter) increment() {
	if c.count.Add(1) == c.number {
		close(c.reached)
	}
}

func (s *watchedStore) Get(ctx context.Context, key cid.Cid) (blocks.Block, error) {
	s.reads.increment()
	return s.Blockstore.Get(ctx, key)
}

func (s *watchedStore) Put(ctx context.Context, block blocks.Block) error {
	s.writes.increment()
	return s.Blockstore.Put(ctx, block)
}

func (s *watchedStore) PutMany(ctx context.Context, all []blocks.Block) error {
	for range all {
		s.writes.increment()
	}
	return s.Blockstore.PutMany(ctx, all)
}

// newStore returns an empty store in memory.
func newStore() *watchedStore {
	return &watchedStore{Blockstore: blockstore.NewBlockstore(sync.MutexWrap(datastore.NewMapDatastore()))}
}

// newKey returns the key of a new peer.
func newKey(t testing.TB) crypto.PrivKey {
	key, _, err := crypto.GenerateEd25519Key(rand.Reader)
	must0(t, err)
	return key
}

// startNode starts a node with an identity and blocks, which listens on loopback. It ends with the test.
func startNode(t testing.TB, key crypto.PrivKey, store *watchedStore, listen ...string) *node {
	t.Helper()
	// The context of the test ends before the cleanup.
	ctx, cancel := context.WithCancel(context.Background())
	h := newHost(t, key, listen)
	network := bsnet.NewFromIpfsHost(h)
	exchange := bitswap.New(ctx, network, nil, store)
	service := blockservice.New(store, exchange)
	closed := false
	n := &node{host: h, dag: merkledag.NewDAGService(service)}
	n.close = func() {
		if !closed {
			closed = true
			exchange.Close()
			network.Stop()
			h.Close()
			cancel()
		}
	}
	t.Cleanup(n.close)
	return n
}

// newHost builds a libp2p host by hand, because the usual constructor adds transports that take minutes to compile.
func newHost(t testing.TB, key crypto.PrivKey, listen []string) host.Host {
	t.Helper()
	id := must(peer.IDFromPrivateKey(key))(t)
	peers := must(pstoremem.NewPeerstore())(t)
	must0(t, peers.AddPrivKey(id, key))
	must0(t, peers.AddPubKey(id, key.GetPublic()))
	events := eventbus.NewBus()
	network := must(swarm.NewSwarm(id, peers, events))(t)
	muxers := []upgrader.StreamMuxer{{ID: yamux.ID, Muxer: yamux.DefaultTransport}}
	security := must(noise.New(noise.ID, key, muxers))(t)
	upgrade := must(upgrader.New([]sec.SecureTransport{security}, muxers, nil, nil, nil))(t)
	must0(t, network.AddTransport(must(tcp.NewTCPTransport(upgrade, nil, nil))(t)))
	reuse := must(quicreuse.NewConnManager(quicgo.StatelessResetKey{}, quicgo.TokenGeneratorKey{}))(t)
	must0(t, network.AddTransport(must(quic.NewTransport(key, reuse, nil, nil, nil))(t)))
	for _, address := range listen {
		must0(t, network.Listen(multiaddr.StringCast(address)))
	}
	h := must(basichost.NewHost(network, &basichost.HostOpts{EventBus: events}))(t)
	h.Start()
	return h
}

// listenAddress returns the address on which the node listens, for a transport ("tcp" or "udp").
func (n *node) listenAddress(t testing.TB, transport string) multiaddr.Multiaddr {
	t.Helper()
	protocol := multiaddr.ProtocolWithName(transport).Code
	for _, address := range n.host.Network().ListenAddresses() {
		if _, err := address.ValueForProtocol(protocol); err == nil {
			return address
		}
	}
	t.Fatalf("the node has no address for %s", transport)
	return nil
}

// address returns the address of the node for a transport, with its peer ID.
func (n *node) address(t testing.TB, transport string) multiaddr.Multiaddr {
	t.Helper()
	return n.listenAddress(t, transport).Encapsulate(multiaddr.StringCast("/p2p/" + n.host.ID().String()))
}

// addFile imports a file in chunks of 256 KiB.
func (n *node) addFile(t testing.TB, content []byte) ipld.Node {
	t.Helper()
	chunks := chunk.NewSizeSplitter(bytes.NewReader(content), 256<<10)
	return must(importer.BuildDagFromReader(n.dag, chunks))(t)
}

// addShardedDirectory imports files into a HAMT.
func (n *node) addShardedDirectory(t testing.TB, files map[string][]byte) cid.Cid {
	t.Helper()
	directory := must(unixfs.NewHAMTDirectory(n.dag, 0))(t)
	for name, content := range files {
		must0(t, directory.AddChild(t.Context(), name, n.addFile(t, content)))
	}
	root := must(directory.GetNode())(t)
	must0(t, n.dag.Add(t.Context(), root))
	return root.Cid()
}

// session returns a view of the DAGs that fetches blocks in one session of Bitswap.
func (n *node) session(ctx context.Context) ipld.DAGService {
	return merkledag.NewReadOnlyDagService(merkledag.NewSession(ctx, n.dag))
}

// getFile returns the bytes of a file, which the node fetches.
func (n *node) getFile(ctx context.Context, root cid.Cid) ([]byte, error) {
	session := n.session(ctx)
	top, err := session.Get(ctx, root)
	if err != nil {
		return nil, err
	}
	return read(ctx, top, session)
}

// read returns the bytes of a file with this root.
func read(ctx context.Context, root ipld.Node, session ipld.NodeGetter) ([]byte, error) {
	reader, err := unixfs.NewDagReader(ctx, root, session)
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	return io.ReadAll(reader)
}

// getDirectory returns the files of a directory, which the node fetches, and whether it is a HAMT.
func (n *node) getDirectory(ctx context.Context, root cid.Cid) (map[string][]byte, bool, error) {
	session := n.session(ctx)
	top, err := session.Get(ctx, root)
	if err != nil {
		return nil, false, err
	}
	directory, err := unixfs.NewDirectoryFromNode(session, top)
	if err != nil {
		return nil, false, err
	}
	dynamic, isDynamic := directory.(*unixfs.DynamicDirectory)
	isSharded := false
	if isDynamic {
		_, isSharded = dynamic.Directory.(*unixfs.HAMTDirectory)
	}
	links, err := directory.Links(ctx)
	if err != nil {
		return nil, false, err
	}
	names, cids := map[cid.Cid]string{}, []cid.Cid{}
	for _, link := range links {
		names[link.Cid] = link.Name
		cids = append(cids, link.Cid)
	}
	files := map[string][]byte{}
	for found := range session.GetMany(ctx, cids) {
		if found.Err != nil {
			return nil, false, found.Err
		}
		content, err := read(ctx, found.Node, session)
		if err != nil {
			return nil, false, err
		}
		files[names[found.Node.Cid()]] = content
	}
	return files, isSharded, nil
}
