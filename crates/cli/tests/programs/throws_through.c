int through(int (*function)(int), int value)
{
	volatile char room[100];
	room[value] = 1;
	int result = function(value + room[value] - 1);
	return result + room[0];
}
