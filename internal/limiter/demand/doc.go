// Package demand has the forms of a demand until it is decided: the plan of a policy that is in force, the target under
// which an identifier counts, the charge itself, as instances decide it and hand it on, and the settings of all. It decides
// nothing.
package demand
