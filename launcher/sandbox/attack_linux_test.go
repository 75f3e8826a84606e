package sandbox

const attackCommand = "__attack"

func attack([]string) int { return 0 }
