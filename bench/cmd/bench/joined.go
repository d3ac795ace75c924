package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// joined returns an error until the instance at address decides together with the given number of instances, itself
// included. It also returns the share of all keys for which that instance knows which are new.
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
		return 0, fmt.Errorf("the view in force does not have %d members", instances)
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
		return fmt.Errorf("owners know which keys are new for only %.0f%% of all keys", 100*knows)
	}
	return nil
}
