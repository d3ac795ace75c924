// Package prepared keeps the units of calls of several demands between their counting and the call's commit or abort.
package prepared
