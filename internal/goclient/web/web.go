// Package web has the tests of client/httplimit that need the service: they play it against a real one.
package web
