package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// joined returns an error until the instance of ratelimitd at address decides together with so many, itself included. It
// also returns for which share of all keys that instance knows which are new.
func joined(address string, instances int) (knows float64, err error) {
	response, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	missing := map[string]bool{fmt.Sprintf("ratelimitd_members %d", instances): true, "ratelimitd_members_view_installed 1": true}
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		delete(missing, lines.Text())
		if share, ok := strings.CutPrefix(lines.Text(), "ratelimitd_members_known_share "); ok {
			if knows, err = strconv.ParseFloat(share, 64); err != nil {
				return 0, err
			}
		}
	}
	if err := lines.Err(); err != nil {
		return 0, err
	}
	if len(missing) > 0 {
		return 0, fmt.Errorf("not all of %d instances are members of a view that is in force", instances)
	}
	return knows, nil
}

// joinedAll returns an error until the instances at addresses decide together, and know all keys.
func joinedAll(addresses []string) error {
	knows := 0.0
	for _, address := range addresses {
		share, err := joined(address, len(addresses))
		if err != nil {
			return err
		}
		knows += share
	}
	if knows < .999 { // a sum of rounded shares
		return fmt.Errorf("it is known of %.0f%% of all keys whether they are new", 100*knows)
	}
	return nil
}
