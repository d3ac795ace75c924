// The names that a page's Go blocks use. Each block is the body of an entry of pages.
package main

import (
	"context"
	"crypto/x509"
	"fmt"
	"log"
	"net/http"
	"net/netip"
	"os"
	"testing"

	"github.com/ratelimitd/ratelimitd/client"
)

var (
	caller  = os.Getenv("PAGE_CALLER") // a number of this block alone
	phone   = fmt.Sprintf("+4915112345%03s", caller)
	address = "203.0.113." + caller
	mail    = "anna" + caller + "@example.com"
	account = "anna" + caller

	limits  = must(client.New(os.Getenv("RATELIMITD_SERVER"), nil))
	url     = os.Getenv("RATELIMITD_SERVER")
	mux     = http.NewServeMux()
	proxies []netip.Prefix

	err             error
	policies, token string
	hosts           []string
	authorities     *x509.CertPool
	t               *testing.T
)

func must(c *client.Client, err error) *client.Client {
	if err != nil {
		log.Fatal(err)
	}
	return c
}

func do(what string) bool {
	fmt.Println(what)
	return true
}

func sendCode(string) bool                     { return !do("send the code") } // the gateway refuses the code
func callWithCode(string)                      { do("call, and read the code out") }
func createAccount(string)                     { do("create the account") }
func passwordIsRight(string) bool              { return do("check the password") }
func codeIsRight(string) bool                  { return do("check the code") }
func tellToWait(any)                           { do("tell to wait") }
func deny()                                    { do("deny") }
func alarm(error)                              { do("raise an alarm") }
func login(http.ResponseWriter, *http.Request) {}

// pages are the blocks by their numbers.
var pages = map[string]func(context.Context) error{}

func main() {
	if err := pages[os.Args[1]](context.Background()); err != nil {
		log.Fatal(err)
	}
}
