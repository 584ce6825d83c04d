// Where the innermost frame stands.
enum place {
	// It was called.
	CALLED,
	// In the handler of a signal.
	IN_HANDLER,
	// On a stack of its own.
	ON_ALTERNATE_STACK,
	// It was called, or is where the fault is: no signal is handled.
	AT_FAULT,
};

// Gets the context of what was interrupted, or NULL.
typedef void body(void *context);

// Builds a bad stack, by name, and calls `stands` at its innermost frame. Does not return; exits with 99 if
// there is no such scene.
void run_scene(const char *name, enum place where, body *stands);
