// goroutines: waits in C code, called a few frames deep, while other goroutines sleep.
package main

/*
#include "ready.h"
static volatile int goes_on = 1;
__attribute__((noinline)) static void waits(void)
{
    ready();
    while (goes_on)
        pause();
    goes_on = 0;
}
void calls_waits(void)
{
    waits();
    goes_on = 0;
}
*/
import "C"

import "time"

var sink int

func descends(depth int) int {
	var kept [40]int
	kept[depth%40] = depth
	if depth == 0 {
		C.calls_waits()
	} else {
		sink += descends(depth - 1)
	}
	return kept[depth%40]
}

func main() {
	for i := 0; i < 20; i++ {
		go time.Sleep(time.Hour)
	}
	time.Sleep(10 * time.Millisecond)
	sink += descends(3)
}
