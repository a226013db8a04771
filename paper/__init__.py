"""The reproduction of Ding et al., IJCAI 2021: everything that only this project needs. Not in the wheel."""
