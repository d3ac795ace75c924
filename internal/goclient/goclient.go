// Package goclient has the tests of Go's client that need the service: they play it against a real one, in one process. The
// client is a module of its own, which does not know the service.
package goclient
