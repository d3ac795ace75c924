// Package demand has the forms of a demand until it is decided: the plan of a policy that is in force, the target under
// which an identifier counts, the charge or request itself, and the settings of all. It decides nothing.
package demand
