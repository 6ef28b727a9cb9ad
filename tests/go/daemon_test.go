package tests

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
)

// limit is the time that one transfer may take.
const limit = 60 * time.Second

// daemon is a running ipfrs daemon with a repo of its own.
type daemon struct {
	t      testing.TB
	origin string
}

// startDaemon starts a daemon with an empty repo, to which peers can connect over TCP and QUIC. It ends with the test.
func startDaemon(t testing.TB) *daemon {
	t.Helper()
	cli := os.Getenv("IPFRS_CLI")
	if cli == "" {
		t.Fatal("IPFRS_CLI is not set: run this with cargo xtask go")
	}
	repo := t.TempDir()
	config := filepath.Join(repo, "config.toml")
	listen := `listen = ["/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"]`
	must0(t, os.WriteFile(config, []byte("[retrieval.bitswap]\nenabled = true\n"+listen+"\n"), 0o600))
	options := []string{"--repo", repo, "--config", config, "gateway", "start"}
	process := exec.Command(cli, append(options, "--port", "0", "--grpc-port", "0", "--api-port", "0")...)
	process.Stderr = os.Stderr
	stdout := must(process.StdoutPipe())(t)
	must0(t, process.Start())
	t.Cleanup(func() {
		process.Process.Signal(syscall.SIGTERM)
		process.Wait()
	})
	d := &daemon{t: t}
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if origin, found := strings.CutPrefix(lines.Text(), "Gateway: "); found {
			d.origin = origin
		}
		if lines.Text() == "Ready" {
			go io.Copy(io.Discard, stdout)
			return d
		}
	}
	t.Fatal("the daemon ended before it was ready")
	return nil
}

// request sends a request and returns the body of the response, which must have the status 200.
func (d *daemon) request(method, target string, header http.Header, body io.Reader) ([]byte, error) {
	ctx, cancel := context.WithTimeout(d.t.Context(), limit)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, d.origin+target, body)
	if err != nil {
		return nil, err
	}
	for name, values := range header {
		request.Header[name] = values
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %.2000s", target, response.Status, content)
	}
	return content, err
}

// rpc calls a command and decodes the response.
func (d *daemon) rpc(command string, response any, arguments ...string) {
	d.t.Helper()
	query := url.Values{"arg": arguments}
	body := must(d.request("POST", "/api/v0/"+command+"?"+query.Encode(), nil, nil))(d.t)
	must0(d.t, json.Unmarshal(body, response))
}

// address returns the peer ID of the daemon and its addresses for a transport ("tcp" or "udp").
func (d *daemon) address(transport string) peer.AddrInfo {
	d.t.Helper()
	var identity struct{ Addresses []string }
	d.rpc("id", &identity)
	for _, address := range identity.Addresses {
		if strings.Contains(address, "/"+transport+"/") {
			return *must(peer.AddrInfoFromString(address))(d.t)
		}
	}
	d.t.Fatalf("no address for %s: %v", transport, identity.Addresses)
	return peer.AddrInfo{}
}

// connect makes the daemon connect to a peer.
func (d *daemon) connect(address multiaddr.Multiaddr) {
	d.t.Helper()
	var done struct{ Strings []string }
	d.rpc("swarm/connect", &done, address.String())
}

// stayConnected makes the daemon connect to a peer, and again whenever the connection is lost.
func (d *daemon) stayConnected(address multiaddr.Multiaddr) {
	d.t.Helper()
	var done struct{ ID string }
	d.rpc("swarm/peering/add", &done, address.String())
}

// add adds files, by their paths, and returns the CID of the last entry: the file, or the directory around all.
func (d *daemon) add(files map[string][]byte) cid.Cid {
	d.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	for name, content := range files {
		header := textproto.MIMEHeader{}
		header.Set("Content-Disposition", fmt.Sprintf(`form-data; name="file"; filename="%s"`, url.PathEscape(name)))
		header.Set("Content-Type", "application/octet-stream")
		must(must(form.CreatePart(header))(d.t).Write(content))(d.t)
	}
	must0(d.t, form.Close())
	header := http.Header{"Content-Type": {form.FormDataContentType()}}
	lines := must(d.request("POST", "/api/v0/add?quieter=true", header, &body))(d.t)
	all := bytes.Split(bytes.TrimSpace(lines), []byte("\n"))
	var last struct{ Hash string }
	must0(d.t, json.Unmarshal(all[len(all)-1], &last))
	return must(cid.Decode(last.Hash))(d.t)
}

// get returns the bytes of a path, which the daemon fetches.
func (d *daemon) get(path string) ([]byte, error) {
	return d.request("GET", "/ipfs/"+path, nil, nil)
}
