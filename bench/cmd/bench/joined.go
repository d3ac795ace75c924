package main

import (
	"bufio"
	"fmt"
	"net/http"
)

// joined returns nil once the instance of ratelimitd at address decides together with so many, itself included.
func joined(address string, instances int) error {
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	missing := map[string]bool{fmt.Sprintf("ratelimitd_members %d", instances): true, "ratelimitd_members_view_installed 1": true}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		delete(missing, lines.Text())
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if len(missing) > 0 {
		return fmt.Errorf("not all of %d instances are members of a view that is in force", instances)
	}
	return nil
}
