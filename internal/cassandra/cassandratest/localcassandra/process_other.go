//go:build !unix

package localcassandra

import (
	"errors"
	"os/exec"
)

// errNotUnix is returned for Java nodes on systems without signals to pause a node. Docker works there.
var errNotUnix = errors.New("Java nodes need a Unix system; set " + EnvMode + "=docker")

type process struct{ exited chan struct{} }

func startProcess(*exec.Cmd, string) (*process, error) { return nil, errNotUnix }

func (p *process) pause() error     { return errNotUnix }
func (p *process) resume() error    { return errNotUnix }
func (p *process) kill() error      { return errNotUnix }
func (p *process) terminate() error { return errNotUnix }

func lockFile(string) (unlock func(), err error) { return nil, errNotUnix }
