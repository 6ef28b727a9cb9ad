package acme

import (
	"bytes"
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"maps"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
	"github.com/miekg/dns"
)

// authority is pebble, in this process. For it, every name below .test leads to the daemon.
type authority struct {
	directory string         // URL of the directory
	issuer    string         // file with the certificate of the directory's server
	roots     *x509.CertPool // of the certificates that pebble issues
	names     *db.MemoryStore
	address   string       // of the daemon
	orders    atomic.Int32 // requests for an order
	ordering  sync.Mutex   // while it is locked, such requests wait
	spends    bool         // whether every other request arrives with a spent nonce
}

// startAuthority starts pebble. Its certificates are valid for so many seconds.
func startAuthority(t *testing.T, validity uint64) *authority {
	t.Setenv("PEBBLE_VA_NOSLEEP", "1")
	t.Setenv("PEBBLE_WFE_NONCEREJECT", "0")
	t.Setenv("PEBBLE_AUTHZREUSE", "0")
	server := httptest.NewUnstartedServer(nil)
	// The port is that of pebble, so no other process gets it, at another address of loopback.
	port := server.Listener.Addr().(*net.TCPAddr).Port
	address := fmt.Sprintf("127.0.0.2:%d", port)
	a := &authority{names: db.NewMemoryStore(), address: address, roots: x509.NewCertPool()}
	silent := log.New(io.Discard, "", 0)
	issuing := ca.New(silent, a.names, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {ValidityPeriod: validity}})
	a.roots.AddCert(issuing.GetRootCert(0).Cert)
	// Only TLS-ALPN-01 can succeed: nothing listens on port 1.
	validating := va.New(silent, 1, port, true, startDNS(t), a.names)
	front := wfe.New(silent, a.names, validating, issuing, []string{"pebble.test"}, true, false, 1, 1)
	certificate := selfSigned(t)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	server.Config.Handler = a.before(front.Handler())
	server.StartTLS()
	t.Cleanup(server.Close)
	a.directory = server.URL + wfe.DirectoryPath
	a.issuer = filepath.Join(t.TempDir(), "issuer.pem")
	block := &pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}
	check(t, os.WriteFile(a.issuer, pem.EncodeToMemory(block), 0o600))
	return a
}

// before counts and holds orders, and spends nonces, before pebble gets a request. It takes the reason from orders.
func (a *authority) before(pebble http.Handler) http.Handler {
	var posts atomic.Int32
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/order-plz" {
			a.orders.Add(1)
			a.ordering.Lock()
			a.ordering.Unlock()
		}
		if a.spends && r.Method == "POST" && posts.Add(1)%2 == 1 {
			spendNonce(pebble, r)
		}
		response := httptest.NewRecorder()
		pebble.ServeHTTP(response, r)
		maps.Copy(w.Header(), response.Header())
		w.Header().Del("Content-Length")
		w.WriteHeader(response.Code)
		w.Write(withoutReason(response.Body.Bytes()))
	})
}

// withoutReason returns a response without the error of an order, which need not be there (RFC 8555, 7.1.3). Let's
// Encrypt leaves it out. Challenges keep theirs.
func withoutReason(body []byte) []byte {
	var fields map[string]any
	if json.Unmarshal(body, &fields) != nil || fields["finalize"] == nil {
		return body
	}
	delete(fields, "error")
	body, _ = json.Marshal(fields)
	return body
}

// spendNonce sends pebble a copy of a request, which takes the nonce but has the wrong URL.
func spendNonce(pebble http.Handler, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))
	other := r.Clone(r.Context())
	other.Body = io.NopCloser(bytes.NewReader(body))
	other.RequestURI = "/other"
	pebble.ServeHTTP(httptest.NewRecorder(), other)
}

// selfSigned returns a certificate for 127.0.0.1. Rustls refuses the one of httptest, which is that of an issuer.
func selfSigned(t *testing.T) tls.Certificate {
	public, private, err := ed25519.GenerateKey(nil)
	check(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "pebble.test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(nil, template, template, public, private)
	check(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private}
}

// startDNS answers every name below .test with the address of the daemon. It returns its own.
func startDNS(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, query *dns.Msg) {
		response := new(dns.Msg).SetReply(query)
		question := query.Question[0]
		if question.Qtype == dns.TypeA && strings.HasSuffix(question.Name, ".test.") {
			record, _ := dns.NewRR(question.Name + " 60 IN A 127.0.0.2")
			response.Answer = append(response.Answer, record)
		}
		w.WriteMsg(response)
	})
	server := &dns.Server{Listener: listener, Handler: handler}
	go server.ActivateAndServe()
	t.Cleanup(func() { listener.Close() })
	return listener.Addr().String()
}
